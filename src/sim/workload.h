// SPDX-License-Identifier: Apache-2.0
//
// What the hosts of a simulation have to send each other, as data: flows, and which of them wait
// for which. A flow completes its `group`; a group is complete when all its flows have ended, well
// or badly. A flow waits for the group `after_group` and for `earliest`, then for `delay` more
// (what its host computes first).
//
// Groups are numbered within one workload. Patterns that make workloads are in patterns.h, what
// runs them is workload_runner.h.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "sim/host_stack.h"

namespace spillway::sim {

struct PlannedFlow {
  Flow flow;  // its id and job are given by the runner
  base::Instant earliest{};
  base::Duration delay{};
  std::uint32_t group = kNone;
  std::uint32_t after_group = kNone;
};

struct Workload {
  std::vector<PlannedFlow> flows;
  std::uint32_t groups = 0;
  // The run need not wait for it: traffic of others.
  bool is_background = false;
};

}  // namespace spillway::sim
