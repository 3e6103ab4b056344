// SPDX-License-Identifier: Apache-2.0
//
// The stacks of one job: one on every host of the network, even on hosts that the job does not use,
// so that they have the same number everywhere. The network owns the stacks. This class refers to
// them to add up their counters, and holds what they share. It must outlive the network.
//
// The protocol is chosen here: add_stacks_to() in the .cc file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "sim/network.h"
#include "sim/results.h"
#include "sim/scenario/scenario.h"
#include "sim/stacks/spillway_stack.h"
#include "sim/tcp/stack.h"

namespace spillway::sim {

// The properties of the network that a job's stacks need.
struct JobSurroundings {
  std::uint8_t stack = 0;  // number of the job's stacks
  base::BitRate link_rate;
  std::uint32_t trim_bytes = 0;
  std::uint64_t seed = 0;
  StackObserver* observer = nullptr;  // of Spillway stacks
};

class JobStacks {
 public:
  JobStacks(const scenario::Job& job, const JobSurroundings& surroundings);

  // An error if a flow of the workload is more than the job's protocol can carry as one.
  base::Status check(const scenario::Workload& workload) const;
  void add_stacks_to(Network& network, FlowListener& listener);

  std::uint8_t index() const { return index_; }
  StackTotals totals() const;
  // One per host; empty unless the job's protocol is Spillway.
  std::span<const SpillwayStack* const> spillway() const { return spillway_; }

 private:
  std::uint8_t index_;
  scenario::Protocol protocol_;
  scenario::TcpConfig tcp_config_;
  SpillwayStackConfig spillway_config_;
  std::vector<const TcpStack*> tcp_;
  std::vector<const SpillwayStack*> spillway_;
};

}  // namespace spillway::sim
