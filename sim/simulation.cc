// SPDX-License-Identifier: Apache-2.0
#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/random.h"
#include "base/units.h"
#include "sim/network.h"
#include "sim/results.h"
#include "wire/packet.h"

namespace spillway::sim {

// ------------------------------------------------------------------ stacks of a job

namespace {

SpillwayStackConfig spillway_config(const scenario::Job& job, const JobSurroundings& surroundings) {
  const scenario::SpillwayOptions& options = job.spillway;
  SpillwayStackConfig config;
  config.endpoint.job = static_cast<std::uint16_t>(surroundings.stack + 1);
  config.endpoint.first_number = options.first_number;
  config.endpoint.limits = options.limits;
  config.endpoint.exchange = options.exchange;
  config.endpoint.exchange.receive_rate = options.receive_rate.value_or(surroundings.link_rate);
  config.endpoint.exchange.packet = base::bytes(options.packet_bytes);
  config.packet_bytes = options.packet_bytes;
  config.precision = options.precision;
  config.stack = surroundings.stack;
  config.deadline = options.deadline;
  config.real_bytes = options.real_bytes;
  config.packet_limits.mtu = options.packet_bytes + spillway_datagram_overhead(0);
  config.packet_limits.trim_bytes = surroundings.trim_bytes;
  config.encoding.precision = options.precision;
  config.job_seed = surroundings.seed;
  config.session.protection = options.protection;
  base::store_le(config.session.key.bytes.data(), surroundings.seed);
  config.observer = surroundings.observer;
  return config;
}

}  // namespace

JobStacks::JobStacks(const scenario::Job& job, const JobSurroundings& surroundings)
    : index_(surroundings.stack),
      protocol_(job.protocol),
      tcp_config_(job.tcp),
      spillway_config_(spillway_config(job, surroundings)) {}

base::Status JobStacks::check(const scenario::Workload& workload) const {
  if (protocol_ != scenario::Protocol::kSpillway) {
    return {};
  }
  if (spillway_config_.real_bytes) {
    // Any length will do: only the limits or the encoding can be wrong.
    const base::Result<packetize::PacketPlan> plan =
        packetize::PacketPlan::make(1, spillway_config_.packet_limits, spillway_config_.encoding);
    if (!plan.ok()) {
      return plan.status();
    }
  }
  const std::uint64_t most = std::uint64_t{payload_bytes(spillway_config_)} * SPILLWAY_MAX_PACKETS;
  for (const scenario::PlannedFlow& planned : workload.flows) {
    if (planned.flow.bytes > most) {
      return {base::StatusCode::kLimitExceeded,
              fmt::format("a flow of {} bytes is more than the {} a Spillway message of {}-byte "
                          "packets holds: use more layers or larger packets",
                          planned.flow.bytes, most, spillway_config_.packet_bytes)};
    }
  }
  return {};
}

void JobStacks::add_stacks_to(Network& network, FlowListener& listener) {
  for (HostId host = 0; host < network.hosts(); ++host) {
    std::unique_ptr<HostStack> stack;
    if (protocol_ == scenario::Protocol::kSpillway) {
      SpillwayStackConfig config = spillway_config_;
      config.endpoint.rank = static_cast<std::uint16_t>(host);
      auto made = std::make_unique<SpillwayStack>(config, network.pool(), listener);
      spillway_.push_back(made.get());
      stack = std::move(made);
    } else {
      auto made = std::make_unique<TcpStack>(tcp_config_, index_, listener);
      tcp_.push_back(made.get());
      stack = std::move(made);
    }
    SPILLWAY_CHECK(network.add_stack(host, std::move(stack)) == index_);
  }
}

StackTotals JobStacks::totals() const {
  StackTotals totals;
  for (const TcpStack* stack : tcp_) {
    const TcpCounters counters = stack->counters();
    totals.data_sent += counters.segments_sent;
    totals.data_resent += counters.retransmissions;
    totals.timeouts += counters.timeouts;
    totals.probes += counters.tail_probes;
    totals.marked += counters.marked;
  }
  for (const SpillwayStack* stack : spillway_) {
    const transport::EndpointCounters& counters = stack->endpoint().counters();
    totals.data_sent += counters.data_sent;
    totals.data_resent += counters.data_resent;
    totals.probes += counters.probes_sent;
    totals.marked += counters.marked;
    totals.trimmed += counters.trimmed;
    totals.worst_error = std::max(totals.worst_error, stack->worst_error());
  }
  return totals;
}

// ------------------------------------------------------------------ flows

std::uint32_t WorkloadRunner::add(const scenario::Workload& workload, std::uint8_t stack) {
  const auto first_group = static_cast<std::uint32_t>(groups_.size());
  const auto numbered = [&](std::uint32_t group) {
    SPILLWAY_CHECK(group == scenario::kNoGroup || group < workload.groups);
    return group == scenario::kNoGroup ? scenario::kNoGroup : first_group + group;
  };
  groups_.resize(groups_.size() + workload.groups);
  for (const scenario::PlannedFlow& planned : workload.flows) {
    const auto id = static_cast<FlowId>(records_.size());
    FlowRecord record{.flow = planned.flow};
    record.flow.id = id;
    record.flow.job = jobs_;
    const Plan plan{.earliest = planned.earliest,
                    .delay = planned.delay,
                    .group = numbered(planned.group),
                    .after_group = numbered(planned.after_group),
                    .stack = stack,
                    .is_background = workload.is_background};
    if (plan.group != scenario::kNoGroup) {
      ++groups_[plan.group].open;
    }
    if (plan.after_group != scenario::kNoGroup) {
      groups_[plan.after_group].waiting.push_back(id);
    }
    open_ += plan.is_background ? 0 : 1;
    records_.push_back(record);
    plans_.push_back(plan);
  }
  return jobs_++;
}

void WorkloadRunner::start() {
  for (FlowId id = 0; id < records_.size(); ++id) {
    const std::uint32_t after = plans_[id].after_group;
    if (after == scenario::kNoGroup || groups_[after].open == 0) {
      schedule(id, network_.now());
    }
  }
}

void WorkloadRunner::schedule(FlowId id, base::Instant ready) {
  const base::Instant due = std::max(ready, plans_[id].earliest) + plans_[id].delay;
  if (due <= network_.now()) {
    launch(id, network_.now());
    return;
  }
  network_.at(due, [this, id](base::Instant now) { launch(id, now); });
}

void WorkloadRunner::launch(FlowId id, base::Instant now) {
  FlowRecord& record = records_[id];
  if (record.ended) {
    return;  // its destination died while it waited
  }
  record.start = now;
  record.started = true;
  if (is_dead(record.flow.from) || is_dead(record.flow.to)) {
    on_flow_end({.id = id, .end = FlowEnd::kPeerDead}, now);
    return;
  }
  network_.start_flow(record.flow, plans_[id].stack);
}

// Uses the network's time: the calling stack's clock may be skewed.
void WorkloadRunner::on_flow_end(const FlowResult& result, base::Instant /*now*/) {
  SPILLWAY_CHECK(result.id < records_.size());
  FlowRecord& record = records_[result.id];
  if (record.ended) {
    return;  // already ended when its destination died
  }
  record.end = network_.now();
  record.ended = true;
  record.result = result;
  settle(result.id);
}

void WorkloadRunner::settle(FlowId id) {
  const Plan& plan = plans_[id];
  if (!plan.is_background) {
    --open_;
    done_ = open_ == 0;
  }
  if (plan.group == scenario::kNoGroup || --groups_[plan.group].open > 0) {
    return;
  }
  const std::vector<FlowId> waiting = std::move(groups_[plan.group].waiting);
  for (const FlowId waiting_id : waiting) {
    schedule(waiting_id, network_.now());
  }
}

void WorkloadRunner::on_host_death(HostId host, base::Instant now) {
  dead_.push_back(host);
  for (FlowId id = 0; id < records_.size(); ++id) {
    if (records_[id].started && records_[id].flow.to == host) {
      on_flow_end({.id = id, .end = FlowEnd::kPeerDead}, now);
    }
  }
}

bool WorkloadRunner::is_dead(HostId host) const {
  return std::find(dead_.begin(), dead_.end(), host) != dead_.end();
}

// ------------------------------------------------------------------ the run

namespace {

// Samples a network's counters over simulated time, for traces. The duration of a run is not known
// beforehand. So samples begin a microsecond apart; at kMaxSamples the sampler drops every second
// one and doubles the interval.
//
// Must live until the network has run. It keeps the network busy: a run with a sampler ends only by
// its stop flag or its limit.
class CounterSampler {
 public:
  static constexpr std::size_t kMaxSamples = 4096;

  explicit CounterSampler(Network& network);
  CounterSampler(const CounterSampler&) = delete;
  CounterSampler& operator=(const CounterSampler&) = delete;

  const std::vector<CounterSample>& samples() const { return samples_; }

 private:
  void take(base::Instant now);
  void forget_every_second();

  Network& network_;
  base::Duration interval_ = base::microseconds(1);
  std::vector<CounterSample> samples_;
};

CounterSampler::CounterSampler(Network& network) : network_(network) {
  take(network.now());
}

void CounterSampler::take(base::Instant now) {
  const spillway_port_counters ports = network_.totals().ports;
  samples_.push_back({.at = now,
                      .marked = ports.packets[SPILLWAY_REASON_MARKED],
                      .trimmed = ports.packets[SPILLWAY_REASON_TRIMMED],
                      .dropped = dropped_packets(ports)});
  if (samples_.size() >= kMaxSamples) {
    forget_every_second();
  }
  network_.at(now + interval_, [this](base::Instant when) { take(when); });
}

void CounterSampler::forget_every_second() {
  for (std::size_t i = 0; 2 * i < samples_.size(); ++i) {
    samples_[i] = samples_[2 * i];
  }
  samples_.resize((samples_.size() + 1) / 2);
  interval_ = interval_ * 2;
}

// First words of derived keys.
constexpr std::uint32_t kNetworkKey = 1;
constexpr std::uint32_t kWorkloadKeys = 2;
constexpr std::uint32_t kJobKeys = 3;

base::Status at_place(const std::string& place, const base::Status& status) {
  return {status.code(), fmt::format("{}: {}", place, status.message())};
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
  base::Result<scenario::Topology> topology = scenario::build_topology(scenario_);
  if (!topology.ok()) {
    return topology.status();
  }
  topology_ = std::move(topology).value();
  network_.emplace(topology_, base::derive_key(scenario_.seed, {kNetworkKey, 0, 0, 0}));
  runner_.emplace(*network_);
  if (scenario_.jobs.empty()) {
    return base::invalid_argument("nothing to run: the scenario has no 'job' and no 'background'");
  }
  if (scenario_.jobs.size() + scenario_.tenants.size() > kMaxStacks) {
    return base::invalid_argument(fmt::format("at most {} jobs and tenants", kMaxStacks));
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
  const scenario::Job& job = scenario_.jobs[index];
  const std::uint64_t needed = std::uint64_t{job.pattern.first_host} + hosts_of(job);
  if (needed > topology_.hosts()) {
    return base::invalid_argument(
        fmt::format("the job needs {} hosts, there are {}", needed, topology_.hosts()));
  }
  const base::Result<scenario::Workload> workload = scenario::plan_workload(pattern_of(job, index));
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

std::uint32_t Simulation::hosts_of(const scenario::Job& job) const {
  const std::uint32_t rest =
      topology_.hosts() - std::min(job.pattern.first_host, topology_.hosts());
  return job.all_hosts ? rest : job.pattern.hosts;
}

scenario::PatternOptions Simulation::pattern_of(const scenario::Job& job,
                                                std::uint32_t index) const {
  scenario::PatternOptions pattern = job.pattern;
  pattern.hosts = hosts_of(job);
  pattern.link_rate = topology_.host_rate(kTypicalHost);
  if (!job.own_seed) {
    pattern.seed = base::derive_key(scenario_.seed, {kWorkloadKeys, index, 0, 0});
  }
  return pattern;
}

base::Status Simulation::add_faults() {
  for (const scenario::Fault& fault : scenario_.faults) {
    if (base::Status status = network_->add_fault(fault); !status.ok()) {
      return status;
    }
    if (fault.kind == scenario::FaultKind::kHostDeath) {
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
  result.completion = base::summarise(std::move(completions));
  return result;
}

JobResult Simulation::job_result(std::uint32_t index, const std::vector<FlowRecord>& flows,
                                 std::vector<base::Duration>& completions) const {
  const scenario::Job& job = scenario_.jobs[index];
  // A job's flows are contiguous; this finds their begin and end.
  const auto first_from = [&flows](std::uint32_t job_index) {
    return std::partition_point(flows.begin(), flows.end(), [job_index](const FlowRecord& record) {
      return record.flow.job < job_index;
    });
  };
  const std::span<const FlowRecord> own(first_from(index), first_from(index + 1));
  JobResult result;
  result.name = job.name;
  result.protocol = scenario::protocol_name(job.protocol);
  result.pattern = scenario::pattern_name(job.pattern.kind);
  result.stacks = stacks_[index]->totals();
  add_flow_figures(own, topology_.host_rate(kTypicalHost), result);
  if (job.pattern.kind != scenario::PatternKind::kBackground) {
    append_completions(own, completions);
  }
  return result;
}

base::Result<ScenarioResult> run_scenario(const scenario::Scenario& scenario,
                                          const RunOptions& options) {
  Simulation simulation(scenario);
  if (base::Status status = simulation.build(); !status.ok()) {
    return status;
  }
  return simulation.run(options);
}

}  // namespace spillway::sim
