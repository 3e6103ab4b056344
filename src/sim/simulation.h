// SPDX-License-Identifier: Apache-2.0
//
// Runs a scenario from beginning to end: builds the network, its faults, every job's stacks and
// flows, runs until all flows but background's have ended or the limit has come, and adds up.
//
// The result is a function of the scenario alone: the same on every machine, every time. Errors are
// those of parts that do not fit together, with the place of the job they concern.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "scenario/scenario.h"
#include "sim/network.h"
#include "sim/results.h"
#include "sim/stacks/job_stacks.h"
#include "sim/stacks/tenants.h"
#include "sim/workload_runner.h"

namespace spillway::sim {

struct RunOptions {
  // Keep samples of the switches' counters over time, at most a few thousand: for traces.
  bool sample_counters = false;
};

base::Result<ScenarioResult> run_scenario(const scenario::Scenario& scenario,
                                          const RunOptions& options = {});

// The same in steps, for those who want to add to the network or look at it: build() once, then
// run() once. Time may be run on afterwards, through the network. One thread.
class Simulation {
 public:
  // Both must outlive the simulation; the observer, if any, is that of all Spillway stacks.
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
  std::vector<std::unique_ptr<JobStacks>> stacks_;  // outlives the network, which has the stacks
  Tenants tenants_;                                 // the same
  std::optional<Network> network_;
  std::optional<WorkloadRunner> runner_;
};

}  // namespace spillway::sim
