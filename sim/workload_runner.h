// SPDX-License-Identifier: Apache-2.0
//
// Runs workloads over a network: starts each flow when it is due, gets its end, and knows when all
// flows except background have ended.
//
//   WorkloadRunner runner(network);
//   ... make stacks with `runner` as their FlowListener ...
//   runner.add(workload, stack);          // once per job
//   runner.start();
//   network.run_until(limit, runner.done());
//
// For the runner, flows to and from a dead host end as kPeerDead: those to it at once, those from
// it when they would start. Flows already started from it end when their receiver reports it.
//
// The runner must outlive the network's run. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/host_stack.h"
#include "sim/network.h"
#include "sim/scenario/workload.h"

namespace spillway::sim {

struct FlowRecord {
  Flow flow;
  base::Instant start{};
  base::Instant end{};
  bool started = false;
  bool ended = false;
  FlowResult result{};
};

class WorkloadRunner final : public FlowListener {
 public:
  explicit WorkloadRunner(Network& network) : network_(network) {}
  WorkloadRunner(const WorkloadRunner&) = delete;
  WorkloadRunner& operator=(const WorkloadRunner&) = delete;

  // Assigns the flows' ids and their job number, 0 for the first workload added. Returns the
  // number.
  std::uint32_t add(const scenario::Workload& workload, std::uint8_t stack);
  void start();
  void on_flow_end(const FlowResult& result, base::Instant now) override;
  void on_host_death(HostId host, base::Instant now);

  // Becomes true when every flow except background has ended; false if there are none.
  const bool& done() const { return done_; }
  // By flow id; a job's flows are contiguous.
  const std::vector<FlowRecord>& records() const { return records_; }

 private:
  struct Plan {
    base::Instant earliest{};
    base::Duration delay{};
    std::uint32_t group = scenario::kNoGroup;  // index over all workloads
    std::uint32_t after_group = scenario::kNoGroup;
    std::uint8_t stack = 0;
    bool is_background = false;
  };
  struct Group {
    std::uint32_t open = 0;  // flows that have not ended
    std::vector<FlowId> waiting;
  };

  void schedule(FlowId id, base::Instant ready);
  void launch(FlowId id, base::Instant now);
  void settle(FlowId id);  // handles the flow's end: starts flows that waited for it
  bool is_dead(HostId host) const;

  Network& network_;
  std::vector<FlowRecord> records_;
  std::vector<Plan> plans_;
  std::vector<Group> groups_;
  std::vector<HostId> dead_;
  std::uint32_t jobs_ = 0;
  std::uint64_t open_ = 0;  // flows that done() waits for
  bool done_ = false;
};

}  // namespace spillway::sim
