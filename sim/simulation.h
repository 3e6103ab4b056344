// SPDX-License-Identifier: Apache-2.0
//
// Runs a scenario from beginning to end: `spillway sim run`.
//
//   Simulation      builds the network with its faults, stacks and flows, runs it and collects the
//                   results
//   JobStacks       the stacks of one job on all hosts; its protocol is chosen here
//   WorkloadRunner  starts each flow when it is due, and knows when all have ended
//
// A run ends when all flows except background have ended, or at the scenario's limit. Its result is
// a function of the scenario alone, the same on every machine. Errors mean that parts of the
// scenario do not fit together; they name the line of the job. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "sim/host.h"
#include "sim/network.h"
#include "sim/results.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/workload.h"
#include "sim/stacks/spillway_stack.h"
#include "sim/stacks/tcp_stack.h"
#include "sim/stacks/tenants.h"

namespace spillway::sim {

// The properties of the network that a job's stacks need.
struct JobSurroundings {
  std::uint8_t stack = 0;  // number of the job's stacks
  base::BitRate link_rate;
  std::uint32_t trim_bytes = 0;
  std::uint64_t seed = 0;
  StackObserver* observer = nullptr;  // of Spillway stacks
};

// The stacks of one job: one on every host of the network, even on hosts that the job does not use,
// so that they have the same number everywhere. The network owns the stacks. This class refers to
// them to add up their counters, and holds what they share. It must outlive the network.
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

// Runs the flows of workloads over a network:
//
//   WorkloadRunner runner(network);
//   ... make stacks with `runner` as their FlowListener ...
//   runner.add(workload, stack);          // once per job
//   runner.start();
//   network.run_until(limit, runner.done());
//
// Flows to and from a dead host end as kPeerDead: those to it at once, those from it when they
// would start. Flows that had started from it end when their receiver reports it.
//
// The runner must outlive the network's run.
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

struct RunOptions {
  // Samples the switches' counters over time for traces; at most a few thousand samples.
  bool sample_counters = false;
};

base::Result<ScenarioResult> run_scenario(const scenario::Scenario& scenario,
                                          const RunOptions& options = {});

// run_scenario() in steps, for callers that add to the network or inspect it: build() once, then
// run() once. The caller may run the network further afterwards.
class Simulation {
 public:
  // Both must outlive the simulation. All Spillway stacks use the observer; it may be null.
  explicit Simulation(const scenario::Scenario& scenario, StackObserver* observer = nullptr)
      : scenario_(scenario), observer_(observer) {}
  explicit Simulation(scenario::Scenario&&, StackObserver* = nullptr) = delete;

  base::Status build();
  ScenarioResult run(const RunOptions& options);

  Network& network() { return *network_; }
  const JobStacks& stacks(std::size_t job) const { return *stacks_[job]; }

 private:
  base::Status add_job(std::uint32_t index);
  std::uint32_t hosts_of(const scenario::Job& job) const;
  scenario::PatternOptions pattern_of(const scenario::Job& job, std::uint32_t index) const;
  base::Status add_faults();
  ScenarioResult result_of() const;
  JobResult job_result(std::uint32_t index, const std::vector<FlowRecord>& flows,
                       std::vector<base::Duration>& completions) const;

  const scenario::Scenario& scenario_;
  StackObserver* observer_;
  scenario::Topology topology_;
  std::vector<std::unique_ptr<JobStacks>> stacks_;  // outlives the network, which owns the stacks
  Tenants tenants_;                                 // the same
  std::optional<Network> network_;
  std::optional<WorkloadRunner> runner_;
};

}  // namespace spillway::sim
