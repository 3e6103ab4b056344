// SPDX-License-Identifier: Apache-2.0
#include "sim/training/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "wire/packet.h"

namespace spillway::sim {

// ------------------------------------------------------------------ a job

// ------------------------------------------------------------------ urgency

namespace {

constexpr double kStepsPerDoubling = 7.0;
constexpr double kLeastExponent = -15.0;
constexpr unsigned kPriorities = 8;

double in_seconds(base::Duration duration) {
  return static_cast<double>(std::max<std::int64_t>(duration.count(), 1)) * 1e-9;
}

}  // namespace

std::uint8_t quantised_urgency(double weight) {
  const double steps = kStepsPerDoubling * (std::log2(weight) - kLeastExponent);
  return static_cast<std::uint8_t>(std::lround(std::clamp(steps, 1.0, 255.0)));
}

std::uint8_t esa_urgency(const StepCosts& costs, std::uint32_t steps_left, std::uint32_t layer,
                         std::uint32_t layers) {
  const double communication = in_seconds(costs.communication);
  const double computation = in_seconds(costs.computation);
  const double left = steps_left * (communication + computation);
  const double front = static_cast<double>(layers) / (layer + 1);
  return quantised_urgency(front * communication / computation / left);
}

std::uint8_t layer_priority(std::uint32_t layer, std::uint32_t layers) {
  return static_cast<std::uint8_t>(kPriorities - 1 - layer * kPriorities / layers);
}

// ------------------------------------------------------------------ a worker

TrainingWorker::TrainingWorker(const scenario::Training& job, std::uint64_t key, Calls calls)
    : job_(job), calls_(std::move(calls)), random_(key), is_reducing_(job.layers.size()) {}

void TrainingWorker::begin_step() {
  slowness_ = 1.0 + job_.jitter * random_.next_unit();
  layer_ = 0;
  go_forward();
}

void TrainingWorker::go_forward() {
  stage_ = WorkerStage::kWaiting;
  if (!is_reducing_[layer_]) {
    compute(WorkerStage::kForward, job_.layers[layer_].forward);
  }
}

void TrainingWorker::go_backward() {
  compute(WorkerStage::kBackward, job_.layers[layer_].backward);
}

void TrainingWorker::compute(WorkerStage stage, base::Duration nominal) {
  stage_ = stage;
  calls_.compute(base::nanoseconds(std::llround(slowness_ * static_cast<double>(nominal.count()))));
}

void TrainingWorker::on_computed() {
  if (stage_ == WorkerStage::kForward) {
    if (layer_ + 1 < job_.layers.size()) {
      ++layer_;
      go_forward();
    } else {
      go_backward();
    }
    return;
  }
  SPILLWAY_CHECK(stage_ == WorkerStage::kBackward);
  const std::uint32_t layer = layer_;
  is_reducing_[layer] = true;
  ++reducing_;
  if (layer > 0) {
    --layer_;
    calls_.reduce(step_, layer);
    go_backward();
  } else if (step_ + 1 < job_.steps) {
    calls_.reduce(step_++, layer);
    begin_step();
  } else {
    stage_ = WorkerStage::kDraining;
    calls_.reduce(step_, layer);
  }
}

void TrainingWorker::on_reduced(std::uint32_t layer) {
  SPILLWAY_CHECK(is_reducing_[layer]);
  is_reducing_[layer] = false;
  --reducing_;
  if (stage_ == WorkerStage::kWaiting && layer == layer_) {
    go_forward();
  } else if (stage_ == WorkerStage::kDraining && reducing_ == 0) {
    stage_ = WorkerStage::kDone;
  }
}

// ------------------------------------------------------------------ the job

namespace {

constexpr unsigned kMtu = 1500;
// First words of derived keys.
constexpr std::uint32_t kGradientKey = 1;
constexpr std::uint32_t kWorkerKeys = 2;

// A stack whose ranks are on consecutive hosts from `first` on.
class PlacedStack final : public HostStack {
 public:
  PlacedStack(std::unique_ptr<CollectiveStack> behind, HostId first)
      : behind_(std::move(behind)), first_(first) {}

  void expect_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_packet(Packet& packet, base::Instant now) override { behind_->on_packet(packet, now); }
  void on_timeout(base::Instant now) override { behind_->on_timeout(now); }
  base::Instant next_timeout() const override { return behind_->next_timeout(); }
  bool poll_transmit(base::Instant now, Packet& packet) override {
    const bool has_packet = behind_->poll_transmit(now, packet);
    packet.to += has_packet ? first_ : 0;
    return has_packet;
  }

 private:
  std::unique_ptr<CollectiveStack> behind_;
  HostId first_;
};

// Layers have names so that each step's scale can be predicted from the one before.
collective::Tolerance tolerance_of(const scenario::Training& job, std::uint32_t layer) {
  const bool is_predicted = job.scale == scenario::ScaleRule::kPredicted;
  return {.codec = job.codec == scenario::TrainingCodec::kLevels ? collective::Codec::kLevels
                                                                 : collective::Codec::kBlocks,
          .precision = job.bits,
          .loss_bound_ppm = 0,
          .feedback_tensor = is_predicted ? std::uint64_t{layer} + 1 : 0,
          .predicts_scale = is_predicted};
}

std::size_t values_of(const scenario::TrainingLayer& layer) {
  return static_cast<std::size_t>(layer.bytes.count()) / sizeof(float);
}

}  // namespace

TrainingJob::TrainingJob(const scenario::Training& description, const Place& place,
                         Network& network, std::function<void()> on_end)
    : description_(description),
      place_(place),
      network_(network),
      on_end_(std::move(on_end)),
      called_(description.workers, std::vector<base::Instant>(description.layers.size())) {
  std::size_t most = 0;
  for (const scenario::TrainingLayer& layer : description.layers) {
    most = std::max(most, values_of(layer));
  }
  base::RandomSequence random(base::derive_key(place.seed, {kGradientKey, 0, 0, 0}));
  gradients_.resize(most);
  std::ranges::generate(gradients_, [&random] { return static_cast<float>(random.next_unit()); });
  sums_.resize(most);
}

// Communication is the time that one worker's parts take on its link.
base::Status TrainingJob::measure_costs() {
  for (std::uint32_t layer = 0; layer < description_.layers.size(); ++layer) {
    const base::Result<collective::SumLayout> layout = collective::SumLayout::make(
        operation(0, layer), group(0), collective::PlanOptions().piece_bytes, 0);
    if (!layout.ok()) {
      return layout.status();
    }
    for (const collective::SumPlace& place : layout->places) {
      chunks_ += layout->chunks_of(place);
    }
    costs_.computation += description_.layers[layer].forward + description_.layers[layer].backward;
  }
  constexpr std::int64_t kOnLink = SPILLWAY_SUM_PACKET + kFrameHeaderBytes + SPILLWAY_WIRE_OVERHEAD;
  costs_.communication = base::transmission_time(
      base::bytes(static_cast<std::int64_t>(chunks_) * kOnLink), place_.rate);
  return {};
}

CollectiveStackConfig TrainingJob::config(std::uint16_t rank) const {
  CollectiveStackConfig config;
  config.engine.group = group(rank);
  config.engine.job = {.id = place_.number, .epoch = 1, .seed = place_.seed};
  config.engine.packet_limits = {.mtu = kMtu};
  config.endpoint.job = place_.number;
  config.endpoint.epoch = 1;
  config.endpoint.rank = rank;
  config.endpoint.exchange.receive_rate = place_.rate;
  config.endpoint.limits.peers = description_.hosts();
  config.endpoint.limits.early_bytes = 1 << 20;
  return config;
}

base::Status TrainingJob::add_stack(std::uint16_t rank) {
  base::Result<std::unique_ptr<CollectiveStack>> stack =
      CollectiveStack::make(config(rank), network_.pool(),
                            [this, rank](std::uint64_t token, const base::Status& status,
                                         const collective::OperationReport& /*report*/) {
                              on_reduced(rank, token, status);
                            });
  if (!stack.ok()) {
    return stack.status();
  }
  stacks_.push_back(stack->get());
  network_.add_stack(place_.first_host + rank,
                     std::make_unique<PlacedStack>(std::move(stack).value(), place_.first_host));
  return {};
}

void TrainingJob::add_worker(std::uint16_t rank) {
  workers_.emplace_back(
      description_, base::derive_key(place_.seed, {kWorkerKeys, rank, 0, 0}),
      TrainingWorker::Calls{
          .compute = [this, rank](base::Duration duration) { compute(rank, duration); },
          .reduce = [this, rank](std::uint32_t step,
                                 std::uint32_t layer) { reduce(rank, step, layer); }});
}

base::Status TrainingJob::add() {
  if (base::Status status = measure_costs(); !status.ok()) {
    return status;
  }
  for (std::uint16_t rank = 0; rank < description_.hosts(); ++rank) {
    if (base::Status status = add_stack(rank); !status.ok()) {
      return status;
    }
  }
  for (std::uint16_t rank = 0; rank < description_.workers; ++rank) {
    add_worker(rank);
  }
  network_.at(description_.start, [this](base::Instant /*now*/) {
    for (TrainingWorker& worker : workers_) {
      worker.start();
    }
  });
  return {};
}

collective::Operation TrainingJob::operation(std::uint32_t step, std::uint32_t layer) const {
  const auto layers = static_cast<std::uint32_t>(description_.layers.size());
  collective::Operation operation;
  operation.op = collective::ReduceOp::kAverage;
  operation.count = values_of(description_.layers[layer]);
  operation.algorithm =
      description_.servers > 0 ? collective::Algorithm::kAutomatic : collective::Algorithm::kSwitch;
  operation.tolerance = tolerance_of(description_, layer);
  operation.priority = layer_priority(layer, layers);
  if (description_.urgency == scenario::UrgencyRule::kEsa) {
    operation.urgency = esa_urgency(costs_, description_.steps - step, layer, layers);
  }
  operation.input = gradients_.data();
  operation.output = sums_.data();
  return operation;
}

// ------------------------------------------------------------------ what happens

void TrainingJob::compute(std::uint16_t rank, base::Duration duration) {
  network_.at(network_.now() + duration, [this, rank](base::Instant /*now*/) {
    if (end_ == TrainingEnd::kCutOff) {
      workers_[rank].on_computed();
    }
  });
}

void TrainingJob::reduce(std::uint16_t rank, std::uint32_t step, std::uint32_t layer) {
  called_[rank][layer] = network_.now();
  const base::Status status = stacks_[rank]->submit(operation(step, layer), layer, network_.now());
  network_.wake(place_.first_host + rank);
  if (!status.ok()) {
    on_reduced(rank, layer, status);
  }
}

void TrainingJob::on_reduced(std::uint16_t rank, std::uint64_t token, const base::Status& status) {
  if (group(rank).is_server() || end_ != TrainingEnd::kCutOff) {
    return;
  }
  if (!status.ok()) {
    failure_ = status;
    end(TrainingEnd::kFailed);
    return;
  }
  const auto layer = static_cast<std::uint32_t>(token);
  reduces_.push_back(network_.now() - called_[rank][layer]);
  workers_[rank].on_reduced(layer);
  check_done();
}

void TrainingJob::check_done() {
  const bool is_done = std::ranges::all_of(
      workers_, [](const TrainingWorker& worker) { return worker.stage() == WorkerStage::kDone; });
  if (is_done) {
    end(TrainingEnd::kDone);
  }
}

void TrainingJob::end(TrainingEnd end) {
  end_ = end;
  ended_ = network_.now();
  on_end_();
}

TrainingResult TrainingJob::result() const {
  TrainingResult result;
  result.name = description_.name;
  result.end = end_;
  result.failure = failure_;
  result.costs = costs_;
  result.chunks = chunks_;
  result.reduce = base::summarise(reduces_);
  if (end_ == TrainingEnd::kDone) {
    result.completion = ended_ - description_.start;
  }
  for (const CollectiveStack* stack : stacks_) {
    const transport::EndpointCounters& counters = stack->endpoint().counters();
    result.sums_sent += counters.sums_sent;
    result.sums_repeated += counters.sums_repeated;
    result.flushes_sent += counters.flushes_sent;
  }
  return result;
}

// ------------------------------------------------------------------ all jobs of a scenario

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
