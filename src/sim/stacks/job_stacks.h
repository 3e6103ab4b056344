// SPDX-License-Identifier: Apache-2.0
//
// The stacks of one job: one per host of the network, whether the job uses the host or not, so that
// a job's stack has the same number everywhere. The network owns the stacks; this remembers them to
// add up what they did, and holds what they share. It must outlive the network.
//
// This is where a protocol is chosen: add_stacks_to() in the .cc file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "scenario/scenario.h"
#include "sim/network.h"
#include "sim/results.h"
#include "sim/stacks/spillway_stack.h"
#include "sim/tcp/stack.h"

namespace spillway::sim {

// What a job's stacks have to know of the network around them.
struct JobSurroundings {
  std::uint8_t stack = 0;  // the number the job's stacks get
  base::BitRate link_rate;
  std::uint32_t trim_bytes = 0;
  std::uint64_t seed = 0;
  StackObserver* observer = nullptr;  // of Spillway stacks
};

class JobStacks {
 public:
  JobStacks(const scenario::Job& job, const JobSurroundings& surroundings);

  // A sentence where a flow of the workload is more than the job's protocol can carry as one.
  base::Status check(const scenario::Workload& workload) const;
  void add_stacks_to(Network& network, FlowListener& listener);

  std::uint8_t index() const { return index_; }
  StackTotals totals() const;
  // One per host; empty for other protocols.
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
