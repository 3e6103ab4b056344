// SPDX-License-Identifier: Apache-2.0
//
// The parameter-server pattern as a workload. Each of `workers` has a tensor of `bytes`, cut into
// `layers` parts, each of them into a shard per server (`grouped`: a whole part goes to the one
// server of the worker's group). When all pushes of a shard are in, its server sends it back to the
// same workers. A worker begins its next step when it has all it pulls; it computes for `compute`
// first, back layers before front layers, and front layers are more urgent (priority 7). Servers
// are spread evenly over the hosts.
//
// Message ids: `operation` is the step, `signature` the layer, `piece` the server of a push and the
// worker of a pull (pulls differ only by their receiver), `phase` reduce for pushes and gather for
// pulls.
//
// Groups, step by step: one per shard of a layer (its pushes are in, its pulls may start), then one
// per worker (its pulls are in, its next step may start).
#pragma once

#include <vector>

#include "base/status.h"
#include "scenario/workload.h"

namespace spillway::scenario {

struct ParameterServerHosts {
  std::vector<HostId> workers;
  std::vector<HostId> servers;
};

// Which hosts serve and which work. The options must be good for plan_parameter_server().
ParameterServerHosts place_parameter_servers(const PatternOptions& options);

base::Result<Workload> plan_parameter_server(const PatternOptions& options);

}  // namespace spillway::scenario
