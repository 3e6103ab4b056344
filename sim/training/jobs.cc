// SPDX-License-Identifier: Apache-2.0
#include "sim/training/jobs.h"

#include <fmt/format.h>

#include <memory>

#include "base/random.h"

namespace spillway::sim {
namespace {

// First words of derived keys.
constexpr std::uint32_t kTrainingNetworkKey = 4;
constexpr std::uint32_t kTrainingJobKeys = 5;

base::Status check_lines(const scenario::Scenario& scenario) {
  if (scenario.trainings.empty()) {
    return base::invalid_argument("nothing to run: the scenario has no 'training'");
  }
  if (!scenario.jobs.empty() || !scenario.tenants.empty()) {
    return base::invalid_argument(
        "'job', 'background' and 'tenant' do not go together with 'training'");
  }
  return {};
}

base::Status add_faults(const scenario::Scenario& scenario, Network& network) {
  for (const scenario::Fault& fault : scenario.faults) {
    if (fault.kind == scenario::FaultKind::kClockSkew) {
      return base::invalid_argument("clocks of training jobs are right: no 'fault kind=skew'");
    }
    if (base::Status status = network.add_fault(fault); !status.ok()) {
      return status;
    }
  }
  return {};
}

// The jobs of one run.
class Trainings {
 public:
  Trainings(const scenario::Scenario& scenario, const scenario::Topology& topology)
      : scenario_(scenario),
        topology_(topology),
        network_(topology, base::derive_key(scenario.seed, {kTrainingNetworkKey, 0, 0, 0})) {}

  base::Status build() {
    HostId first = 0;
    for (const scenario::Training& training : scenario_.trainings) {
      if (base::Status status = add_job(training, first); !status.ok()) {
        return {status.code(), fmt::format("{}: {}", training.place, status.message())};
      }
      first += training.hosts();
    }
    return add_faults(scenario_, network_);
  }

  TrainingsResult run() {
    TrainingsResult result;
    result.finished = network_.run_until(base::Instant(scenario_.limit), is_over_);
    result.end = network_.now();
    result.events = network_.events_run();
    result.network = network_.totals();
    for (const std::unique_ptr<TrainingJob>& job : jobs_) {
      result.jobs.push_back(job->result());
    }
    return result;
  }

 private:
  base::Status add_job(const scenario::Training& training, HostId first) {
    if (first + training.hosts() > topology_.hosts()) {
      return base::invalid_argument(
          fmt::format("the jobs up to this one need {} hosts, there are {}",
                      first + training.hosts(), topology_.hosts()));
    }
    const auto number = static_cast<std::uint32_t>(jobs_.size());
    const TrainingJob::Place place{
        .number = static_cast<std::uint16_t>(number),
        .first_host = first,
        .rate = topology_.host_rate(first),
        .seed = base::derive_key(scenario_.seed, {kTrainingJobKeys, number, 0, 0})};
    jobs_.push_back(std::make_unique<TrainingJob>(training, place, network_,
                                                  [this] { is_over_ = ++ended_ == jobs_.size(); }));
    return jobs_.back()->add();
  }

  const scenario::Scenario& scenario_;
  const scenario::Topology& topology_;
  std::vector<std::unique_ptr<TrainingJob>> jobs_;  // outlive the network, which owns their stacks
  Network network_;
  std::size_t ended_ = 0;
  bool is_over_ = false;
};

}  // namespace

base::Duration TrainingsResult::mean_completion() const {
  base::Duration sum;
  std::int64_t done = 0;
  for (const TrainingResult& job : jobs) {
    sum += job.completion;
    done += job.end == TrainingEnd::kDone ? 1 : 0;
  }
  return done == 0 ? base::Duration() : sum / done;
}

base::Result<TrainingsResult> run_trainings(const scenario::Scenario& scenario) {
  if (base::Status status = check_lines(scenario); !status.ok()) {
    return status;
  }
  const base::Result<scenario::Topology> topology = scenario::build_topology(scenario);
  if (!topology.ok()) {
    return topology.status();
  }
  Trainings trainings(scenario, *topology);
  if (base::Status status = trainings.build(); !status.ok()) {
    return status;
  }
  return trainings.run();
}

}  // namespace spillway::sim
