// SPDX-License-Identifier: Apache-2.0
//
// Runs a scenario: builds the network, its faults, every job's stacks and flows, runs until all
// flows except background have ended or the limit is reached, and collects the results.
//
// The result is a function of the scenario alone, the same on every machine. Errors mean that parts
// of the scenario do not fit together; they name the line of the job.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "sim/network.h"
#include "sim/results.h"
#include "sim/scenario/scenario.h"
#include "sim/stacks/job_stacks.h"
#include "sim/stacks/tenants.h"
#include "sim/workload_runner.h"

namespace spillway::sim {

struct RunOptions {
  // Samples the switches' counters over time for traces; at most a few thousand samples.
  bool sample_counters = false;
};

base::Result<ScenarioResult> run_scenario(const scenario::Scenario& scenario,
                                          const RunOptions& options = {});

// The same in steps, for callers that add to the network or inspect it: build() once, then run()
// once. The caller may run the network further afterwards. One thread.
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
