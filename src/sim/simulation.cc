// SPDX-License-Identifier: Apache-2.0
#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/random.h"
#include "sim/counter_sampler.h"
#include "sim/topology_text.h"

namespace spillway::sim {
namespace {

// What keys are derived for.
constexpr std::uint32_t kNetworkKey = 1;
constexpr std::uint32_t kWorkloadKeys = 2;
constexpr std::uint32_t kJobKeys = 3;

base::Status at_place(const std::string& place, const base::Status& status) {
  return {status.code(), fmt::format("{}: {}", place, status.message())};
}

base::Result<Topology> shape_of(const TopologySpec& spec) {
  switch (spec.kind) {
    case TopologyKind::kLeafSpine:
      return leaf_spine({.hosts = spec.hosts,
                         .leaves = spec.leaves,
                         .spines = spec.spines,
                         .links = spec.links,
                         .host_rate = spec.rate,
                         .uplink_rate = spec.uplink_rate.value_or(spec.rate),
                         .delay = spec.delay});
    case TopologyKind::kFatTree:
      return fat_tree({.k = spec.k, .rate = spec.rate, .delay = spec.delay});
    case TopologyKind::kFile:
      return parse_topology(spec.file_text);
    case TopologyKind::kOneSwitch:
      break;
  }
  return one_switch({.hosts = spec.hosts, .rate = spec.rate, .delay = spec.delay});
}

// Hosts' links may differ in topologies from a file; the first host's stands for all.
constexpr HostId kTypicalHost = 0;

void append_completions(std::span<const FlowRecord> flows,
                        std::vector<base::Duration>& completions) {
  for (const FlowRecord& record : flows) {
    if (record.ended && record.result.end == FlowEnd::kDone) {
      completions.push_back(record.end - record.start);
    }
  }
}

}  // namespace

base::Status Simulation::build() {
  base::Result<Topology> topology = build_topology(scenario_);
  if (!topology.ok()) {
    return topology.status();
  }
  topology_ = std::move(topology).value();
  network_.emplace(topology_, base::derive_key(scenario_.seed, {kNetworkKey, 0, 0, 0}));
  runner_.emplace(*network_);
  if (scenario_.jobs.empty()) {
    return base::invalid_argument("nothing to run: the scenario has no 'job' and no 'background'");
  }
  if (scenario_.jobs.size() + scenario_.tenants.size() > kMostStacks) {
    return base::invalid_argument(fmt::format("at most {} jobs and tenants", kMostStacks));
  }
  for (std::uint32_t index = 0; index < scenario_.jobs.size(); ++index) {
    if (base::Status status = add_job(index); !status.ok()) {
      return at_place(scenario_.jobs[index].place, status);
    }
  }
  if (base::Status status = tenants_.add_to(*network_, topology_, scenario_.tenants);
      !status.ok()) {
    return status;
  }
  return add_faults();
}

ScenarioResult Simulation::run(const RunOptions& options) {
  std::optional<CounterSampler> sampler;
  if (options.sample_counters) {
    sampler.emplace(*network_);
  }
  runner_->start();
  const base::Instant limit{scenario_.limit};
  const bool finished = network_->run_until(limit, runner_->done());
  ScenarioResult result = result_of();
  result.finished = finished;
  if (sampler) {
    result.samples = sampler->samples();
  }
  return result;
}

base::Status Simulation::add_job(std::uint32_t index) {
  const JobSpec& job = scenario_.jobs[index];
  const std::uint64_t needed = std::uint64_t{job.pattern.first_host} + hosts_of(job);
  if (needed > topology_.hosts()) {
    return base::invalid_argument(
        fmt::format("the job needs {} hosts, there are {}", needed, topology_.hosts()));
  }
  const base::Result<Workload> workload = plan_workload(pattern_of(job, index));
  if (!workload.ok()) {
    return workload.status();
  }
  const JobSurroundings surroundings{
      .stack = static_cast<std::uint8_t>(index),
      .link_rate = topology_.host_rate(kTypicalHost),
      .trim_bytes = scenario_.port.trim_bytes,
      .seed = base::derive_key(scenario_.seed, {kJobKeys, index, 0, 0}),
      .observer = observer_};
  stacks_.push_back(std::make_unique<JobStacks>(job, surroundings));
  if (base::Status status = stacks_.back()->check(*workload); !status.ok()) {
    return status;
  }
  stacks_.back()->add_stacks_to(*network_, *runner_);
  runner_->add(*workload, stacks_.back()->index());
  return {};
}

std::uint32_t Simulation::hosts_of(const JobSpec& job) const {
  const std::uint32_t rest =
      topology_.hosts() - std::min(job.pattern.first_host, topology_.hosts());
  return job.all_hosts ? rest : job.pattern.hosts;
}

PatternOptions Simulation::pattern_of(const JobSpec& job, std::uint32_t index) const {
  PatternOptions pattern = job.pattern;
  pattern.hosts = hosts_of(job);
  pattern.link_rate = topology_.host_rate(kTypicalHost);
  if (!job.own_seed) {
    pattern.seed = base::derive_key(scenario_.seed, {kWorkloadKeys, index, 0, 0});
  }
  return pattern;
}

base::Status Simulation::add_faults() {
  for (const Fault& fault : scenario_.faults) {
    if (base::Status status = network_->add_fault(fault); !status.ok()) {
      return status;
    }
    if (fault.kind == FaultKind::kHostDeath) {
      network_->at(fault.from, [this, host = fault.host](base::Instant now) {
        runner_->on_host_death(host, now);
      });
    }
  }
  return {};
}

ScenarioResult Simulation::result_of() const {
  ScenarioResult result;
  result.end = network_->now();
  result.network = network_->totals();
  result.events = network_->events_run();
  result.flows = runner_->records();
  result.host_names = topology_.host_names;
  std::vector<base::Duration> completions;
  for (std::uint32_t index = 0; index < scenario_.jobs.size(); ++index) {
    result.jobs.push_back(job_result(index, result.flows, completions));
  }
  result.completion = summarise(std::move(completions));
  return result;
}

JobResult Simulation::job_result(std::uint32_t index, const std::vector<FlowRecord>& flows,
                                 std::vector<base::Duration>& completions) const {
  const JobSpec& job = scenario_.jobs[index];
  // A job's flows are one run of all; begin and end of it.
  const auto first_from = [&flows](std::uint32_t job_index) {
    return std::partition_point(flows.begin(), flows.end(), [job_index](const FlowRecord& record) {
      return record.flow.job < job_index;
    });
  };
  const std::span<const FlowRecord> own(first_from(index), first_from(index + 1));
  JobResult result;
  result.name = job.name;
  result.protocol = protocol_name(job.protocol);
  result.pattern = pattern_name(job.pattern.kind);
  result.stacks = stacks_[index]->totals();
  add_flow_figures(own, topology_.host_rate(kTypicalHost), result);
  if (job.pattern.kind != PatternKind::kBackground) {
    append_completions(own, completions);
  }
  return result;
}

base::Result<Topology> build_topology(const Scenario& scenario) {
  if (scenario.topology.kind == TopologyKind::kFile && scenario.topology.file_text.empty()) {
    return base::invalid_argument(
        fmt::format("the topology file {} is empty or was not read", scenario.topology.file));
  }
  base::Result<Topology> topology = shape_of(scenario.topology);
  if (!topology.ok()) {
    return at_place("topology", topology.status());
  }
  topology.value().spreading = scenario.topology.spreading;
  topology.value().set_port_config(scenario.port);
  return topology;
}

base::Result<ScenarioResult> run_scenario(const Scenario& scenario, const RunOptions& options) {
  Simulation simulation(scenario);
  if (base::Status status = simulation.build(); !status.ok()) {
    return status;
  }
  return simulation.run(options);
}

}  // namespace spillway::sim
