// SPDX-License-Identifier: Apache-2.0
//
// The parameter-server pattern as a workload. Each of `workers` has a tensor of `bytes`, cut into
// `layers` parts, and each part into one shard per server. If `grouped`, a whole part goes to the
// one server of the worker's group. When all pushes of a shard have arrived, its server sends it
// back to the same workers. A worker begins its next step when all its pulls have arrived. It first
// computes for `compute`, back layers before front layers. Front layers are more urgent (up to
// priority 7). Servers are spread evenly over the hosts.
//
// Message ids: `operation` is the step, `signature` the layer, `piece` the server of a push and the
// worker of a pull (pulls differ only by their receiver), `phase` reduce for pushes and gather for
// pulls.
//
// Groups of each step: one per shard of a layer (complete when its pushes have arrived; its pulls
// start then), then one per worker (complete when its pulls have arrived; its next step starts
// then).
#pragma once

#include <vector>

#include "base/status.h"
#include "sim/scenario/workload.h"

namespace spillway::scenario {

struct ParameterServerHosts {
  std::vector<HostId> workers;
  std::vector<HostId> servers;
};

// Assigns hosts to servers and workers. The options must be valid for plan_parameter_server().
ParameterServerHosts place_parameter_servers(const PatternOptions& options);

base::Result<Workload> plan_parameter_server(const PatternOptions& options);

}  // namespace spillway::scenario
