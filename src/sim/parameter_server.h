// SPDX-License-Identifier: Apache-2.0
//
// The parameter-server pattern (patterns.h says what it is) as a workload.
//
// Groups, step by step: one per shard of a bucket (its pushes are in, its pulls may start), then
// one per worker (its pulls are in, its next step may start).
#pragma once

#include <vector>

#include "base/status.h"
#include "sim/patterns.h"

namespace spillway::sim {

struct ParameterServerHosts {
  std::vector<HostId> workers;
  std::vector<HostId> servers;
};

// Which hosts serve and which work. The options must be good for plan_parameter_server().
ParameterServerHosts place_parameter_servers(const PatternOptions& options);

base::Result<Workload> plan_parameter_server(const PatternOptions& options);

}  // namespace spillway::sim
