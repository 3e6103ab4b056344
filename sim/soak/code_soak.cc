// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/code_soak.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>

#include "base/check.h"
#include "base/random.h"
#include "sim/network.h"
#include "sim/scenario/topology.h"
#include "sim/soak/world.h"
#include "sim/stacks/collective_stack.h"

namespace spillway::sim {

// ------------------------------------------------------------------ worlds

namespace {

using collective::Algorithm;
using collective::Codec;
using collective::Tolerance;

constexpr base::Duration kCodePatience = base::seconds(60);

class CodeWorldBuilder {
 public:
  explicit CodeWorldBuilder(std::uint64_t seed) : draw_(seed) { world_.seed = seed; }

  CodeWorld build() {
    world_.ranks = static_cast<std::uint16_t>(draw_.between(2, 6));
    world_.text =
        OrderedText{"seed {}\n{}{}", world_.seed,
                    draw_small_topology(draw_, world_.ranks, world_.ranks < 3 || draw_.chance(0.6)),
                    draw_small_switch(draw_)}
            .text;
    draw_faults();
    for (std::uint64_t left = draw_.between(1, 3); left > 0; --left) {
      world_.tensors.push_back({.count = draw_.magnitude(16, 20'000),
                                .nonzero = draw_.pick({1.0, 0.3, 0.02}),
                                .has_name = draw_.chance(0.8)});
    }
    for (std::uint64_t left = draw_.between(3, 10); left > 0; --left) {
      world_.calls.push_back(draw_call());
    }
    if (draw_.chance(0.3)) {
      world_.abort =
          CodeAbort{.call = static_cast<std::uint32_t>(draw_.between(0, world_.calls.size() - 1)),
                    .rank = any_rank(),
                    .after = draw_.time(base::microseconds(1), base::milliseconds(2))};
    }
    world_.is_in_turn = draw_.chance(0.5);
    world_.gap = draw_.time(base::microseconds(1), base::milliseconds(2));
    world_.jitter = draw_.time(base::nanoseconds(100), base::milliseconds(5));
    return world_;
  }

 private:
  std::uint16_t any_rank() {
    return static_cast<std::uint16_t>(draw_.between(0, world_.ranks - 1U));
  }

  void draw_faults() {
    take();
    const base::Result<scenario::Topology> topology = scenario::build_topology(world_.scenario);
    SPILLWAY_CHECK(topology.ok());
    SoakFaults faults(draw_, *topology, base::milliseconds(5), base::milliseconds(10));
    world_.text += survivable_faults(faults.draw());
    take();
    world_.limit = faults.over() - base::Instant() + kCodePatience;
  }

  void take() {
    base::Result<scenario::Scenario> parsed = scenario::parse_scenario(world_.text);
    SPILLWAY_CHECK(parsed.ok());
    world_.scenario = std::move(parsed).value();
  }

  CodeCall draw_call() {
    CodeCall call{.tensor =
                      static_cast<std::uint32_t>(draw_.between(0, world_.tensors.size() - 1))};
    if (draw_.chance(0.15)) {
      return call;
    }
    // At least half of these calls use codes that depend on what ranks remember.
    const bool remembers = draw_.chance(0.5);
    const auto codec = static_cast<Codec>(draw_.between(
        remembers ? static_cast<unsigned>(Codec::kEntropy) : 0, collective::kCodecs - 1));
    const bool is_whole = collective::uses_entropy(codec);
    Tolerance tolerance{.codec = codec,
                        .precision = codec == Codec::kLevels
                                         ? draw_.pick<std::uint8_t>({2, 3, 4, 8})
                                         : draw_.pick<std::uint8_t>({4, 8, 12, 16}),
                        .loss_bound_ppm = is_whole ? 0U : draw_.pick<std::uint32_t>({0, 10'000})};
    tolerance.predicts_scale =
        codec != Codec::kPlanes && world_.tensors[call.tensor].has_name && draw_.chance(0.3);
    call.tolerance = tolerance;
    if (is_whole) {
      call.algorithm = draw_.pick({Algorithm::kAutomatic, Algorithm::kDirect, Algorithm::kRing});
    }
    // Other codes predict their scale from shared memory: no rank could detect a forgetful one.
    if (is_whole && world_.tensors[call.tensor].has_name && draw_.chance(0.2)) {
      call.forgetful = any_rank();
    }
    return call;
  }

  SoakDraw draw_;
  CodeWorld world_;
};

}  // namespace

CodeWorld draw_code_world(std::uint64_t seed) {
  return CodeWorldBuilder(seed).build();
}

std::string describe(const CodeWorld& world) {
  std::string text = fmt::format(
      "# world of codes {}\n{}# {} ranks, calls {}, up to {} later\n", world.seed, world.text,
      world.ranks, world.is_in_turn ? "one after the other" : as_text(world.gap) + " apart",
      as_text(world.jitter));
  for (const CodeCall& call : world.calls) {
    const CodeTensor& tensor = world.tensors[call.tensor];
    text += fmt::format("# tensor {}{} of {} values, {} not zero: ", call.tensor,
                        tensor.has_name ? "" : " (no name)", tensor.count, tensor.nonzero);
    text +=
        call.tolerance
            ? fmt::format(
                  "{} at {} bits, bound {} ppm{}, {}{}",
                  collective::codec_name(call.tolerance->codec), call.tolerance->precision,
                  call.tolerance->loss_bound_ppm,
                  call.tolerance->predicts_scale ? ", predicted scale" : "",
                  collective::algorithm_name(call.algorithm),
                  call.forgetful ? fmt::format(", rank {} has forgotten it", *call.forgetful) : "")
            : "exact";
    text += '\n';
  }
  if (world.abort) {
    text += fmt::format("# rank {} gives up in call {}, {} after it began\n", world.abort->rank,
                        world.abort->call, as_text(world.abort->after));
  }
  return text;
}

// ------------------------------------------------------------------ running a world

namespace {

using collective::Codec;

// Longer than any fault, so that no peer is given up.
constexpr base::Duration kCodePeerTimeout = base::seconds(100);
// How long the network runs on after an epoch, before the next one begins or the world ends.
constexpr base::Duration kCodeQuiet = base::seconds(1);

// First words of derived keys.
constexpr std::uint32_t kCodeValueKeys = 1;
constexpr std::uint32_t kCodeStartKeys = 2;
constexpr std::uint32_t kCodeNetworkKey = 3;
constexpr std::uint32_t kCodeSupportKeys = 4;

// A tensor's name; a forgetful rank uses another one.
std::uint64_t name_of(std::uint32_t tensor, bool is_forgotten) {
  return tensor + (is_forgotten ? 1'000 : 1);
}

class CodeSoak {
 public:
  explicit CodeSoak(CodeWorld world)
      : world_(std::move(world)),
        topology_(scenario::build_topology(world_.scenario).value()),
        network_(topology_, base::derive_key(world_.seed, {kCodeNetworkKey, 0, 0, 0})) {}

  CodeSoakResult run() {
    for (const scenario::Fault& fault : world_.scenario.faults) {
      SPILLWAY_CHECK(network_.add_fault(fault).ok());
    }
    run_epoch(0);
    if (world_.abort) {
      run_epoch(1);
    }
    finish();
    std::vector<std::string> failures = check_codes(world_, record_);
    return {std::move(world_), std::move(record_), std::move(failures)};
  }

 private:
  using Name = std::tuple<std::uint32_t, std::uint32_t, std::uint16_t>;  // epoch, call, rank

  // Runs all calls in the first epoch; in the second, those from the abandoned one on.
  void run_epoch(std::uint32_t epoch) {
    const base::Instant begin = network_.now();
    const std::uint32_t first = epoch == 0 ? 0 : world_.abort->call;
    add_stacks(epoch);
    is_over_ = false;
    const std::size_t calls = world_.calls.size() - first;
    open_ = calls * world_.ranks;
    for (std::uint16_t rank = 0; rank < world_.ranks; ++rank) {
      for (std::uint32_t i = 0; i < (world_.is_in_turn ? 1 : calls); ++i) {
        schedule({epoch, first + i, rank}, begin + world_.gap * i);
      }
    }
    network_.run_until(begin + world_.limit, is_over_);
    network_.run_until(network_.now() + kCodeQuiet);
  }

  void add_stacks(std::uint32_t epoch) {
    stacks_.clear();
    for (std::uint16_t rank = 0; rank < world_.ranks; ++rank) {
      auto stack = CollectiveStack::make(
          config_of(epoch, rank), network_.pool(),
          [this, epoch, rank](std::uint64_t token, const base::Status& status,
                              const collective::OperationReport& report) {
            on_ending({epoch, static_cast<std::uint32_t>(token), rank}, status, report);
          });
      SPILLWAY_CHECK(stack.ok());
      stacks_.push_back(stack->get());
      SPILLWAY_CHECK(network_.add_stack(rank, std::move(stack).value()) == epoch);
    }
  }

  CollectiveStackConfig config_of(std::uint32_t epoch, std::uint16_t rank) const {
    CollectiveStackConfig config;
    config.stack = static_cast<std::uint8_t>(epoch);
    config.engine.group = {rank, world_.ranks, 0};
    config.engine.job = {.id = 7, .epoch = epoch + 1, .seed = world_.seed};
    config.engine.packet_limits = {.mtu = 1500, .trim_bytes = 206};
    config.engine.plan = {.piece_bytes = 16 * 1024, .window = 4, .message_bytes = 1 << 20};
    config.endpoint.job = 7;
    config.endpoint.epoch = epoch + 1;
    config.endpoint.rank = rank;
    config.endpoint.exchange.peer_timeout = kCodePeerTimeout;
    config.endpoint.limits.peers = world_.ranks;
    return config;
  }

  void schedule(const Name& name, base::Instant when) {
    const auto [epoch, call, rank] = name;
    base::RandomSequence random(base::derive_key(world_.seed, {kCodeStartKeys, epoch, call, rank}));
    const auto late = static_cast<std::int64_t>(
        random.next_below(static_cast<std::uint64_t>(world_.jitter.count()) + 1));
    // A rank's calls stay in order, however late one of them is.
    when = std::max(when + base::nanoseconds(late), last_start_[{epoch, rank}]);
    last_start_[{epoch, rank}] = when;
    network_.at(when, [this, name](base::Instant now) { submit(name, now); });
    if (epoch == 0 && world_.abort && world_.abort->call == call && world_.abort->rank == rank) {
      network_.at(when + world_.abort->after, [this, rank = rank](base::Instant now) {
        stacks_[rank]->fail({base::StatusCode::kAborted, "somebody gave up"}, now);
        network_.wake(rank);
      });
    }
  }

  void submit(const Name& name, base::Instant now) {
    const auto [epoch, call, rank] = name;
    const CodeCall& plan = world_.calls[call];
    const CodeTensor& tensor = world_.tensors[plan.tensor];
    CodeRecord& record = calls_[name];
    record.epoch = epoch;
    record.call = call;
    record.rank = rank;
    record.output.resize(tensor.count);
    std::vector<float>& input = inputs_[name] = code_input(world_, call, rank);
    collective::Operation operation{.op = collective::ReduceOp::kAverage,
                                    .count = tensor.count,
                                    .algorithm = plan.algorithm,
                                    .tolerance = plan.tolerance,
                                    .input = input.data(),
                                    .output = record.output.data()};
    if (operation.tolerance && tensor.has_name) {
      operation.tolerance->feedback_tensor = name_of(plan.tensor, plan.forgetful == rank);
    }
    const base::Status status = stacks_[rank]->submit(operation, call, now);
    if (!status.ok()) {
      on_ending(name, status, {});
    }
    network_.wake(rank);
  }

  void on_ending(const Name& name, const base::Status& status,
                 const collective::OperationReport& report) {
    CodeRecord& record = calls_.at(name);
    record.is_over = true;
    record.status = status;
    record.report = report;
    is_over_ = --open_ == 0;
    const auto [epoch, call, rank] = name;
    if (world_.is_in_turn && call + 1 < world_.calls.size()) {
      schedule({epoch, call + 1, rank}, network_.now());
    }
  }

  void finish() {
    for (auto& [name, call] : calls_) {
      record_.tables += call.report.entropy.tables();
      record_.given_up += call.is_over && !call.status.ok() ? 1 : 0;
      record_.calls.push_back(std::move(call));
    }
    const NetworkTotals totals = network_.totals();
    record_.packets = totals.sent;
    record_.packets_left = network_.pool().in_use();
    record_.digest = totals.sent * 31 + totals.delivered * 37 + totals.lost * 41 +
                     static_cast<std::uint64_t>(network_.now().since_zero().count()) * 43 +
                     network_.events_run();
  }

  CodeWorld world_;
  scenario::Topology topology_;
  Network network_;
  std::vector<CollectiveStack*> stacks_;  // owned by the network; this epoch's, by rank
  std::map<Name, CodeRecord> calls_;
  std::map<Name, std::vector<float>> inputs_;
  std::map<std::pair<std::uint32_t, std::uint16_t>, base::Instant> last_start_;
  std::size_t open_ = 0;
  bool is_over_ = false;
  CodeSoakRecord record_;
};

// ------------------------------------------------------------------ checks

struct CallTruth {
  std::vector<double> mean;
  double largest = 0.0;  // of any rank's values
  double energy = 0.0;   // of the mean
};

CallTruth truth_of(const CodeWorld& world, std::uint32_t call) {
  CallTruth truth;
  truth.mean.resize(world.tensors[world.calls[call].tensor].count);
  for (std::uint16_t rank = 0; rank < world.ranks; ++rank) {
    const std::vector<float> input = code_input(world, call, rank);
    for (std::size_t i = 0; i < input.size(); ++i) {
      truth.mean[i] += double{input[i]} / world.ranks;
      truth.largest = std::max<double>(truth.largest, std::abs(input[i]));
    }
  }
  for (const double value : truth.mean) {
    truth.energy += value * value;
  }
  return truth;
}

class CodeChecker {
 public:
  CodeChecker(const CodeWorld& world, const CodeSoakRecord& record)
      : world_(world), record_(record) {}

  std::vector<std::string> check() && {
    GoodCalls first_good;
    for (const CodeRecord& call : record_.calls) {
      check_end(call);
      if (!call.is_over || !call.status.ok()) {
        continue;
      }
      const auto [first, is_new] = first_good.try_emplace({call.epoch, call.call}, &call);
      is_new ? check_right(call) : check_same(call, *first->second);
    }
    check_owed(first_good);
    if (record_.packets_left != 0) {
      failures_.push_back(fmt::format("{} packets are left on their way", record_.packets_left));
    }
    return std::move(failures_);
  }

 private:
  // By epoch and call.
  using GoodCalls = std::map<std::pair<std::uint32_t, std::uint32_t>, const CodeRecord*>;

  void fail(const CodeRecord& call, const std::string& what) {
    failures_.push_back(
        fmt::format("epoch {} call {} at rank {} {}", call.epoch, call.call, call.rank, what));
  }

  void check_end(const CodeRecord& call) {
    const bool may_fail = world_.abort && call.epoch == 0;
    if (!call.is_over) {
      fail(call, "was not over in time");
    } else if (!call.status.ok() && !may_fail) {
      fail(call, fmt::format("failed: {}", call.status.message()));
    }
  }

  void check_same(const CodeRecord& call, const CodeRecord& other) {
    if (std::memcmp(call.output.data(), other.output.data(), call.output.size() * sizeof(float)) !=
        0) {
      fail(call, fmt::format("has other bits than rank {}", other.rank));
    }
  }

  void check_right(const CodeRecord& call) {
    const CodeCall& plan = world_.calls[call.call];
    const CallTruth truth = truth_of(world_, call.call);
    double largest_error = 0.0;
    double error = 0.0;
    for (std::size_t i = 0; i < truth.mean.size(); ++i) {
      const double difference = call.output[i] - truth.mean[i];
      largest_error = std::max(largest_error, std::abs(difference));
      error += difference * difference;
    }
    const double most = largest_allowed(plan, truth);
    if (!(largest_error <= most)) {
      fail(call, fmt::format("is off by {}, where {} may be", largest_error, most));
    }
    const double share = share_allowed(plan);
    if (share < HUGE_VAL && !(error <= share * truth.energy)) {
      fail(call, fmt::format("has an error of {} of its energy, where {} may be",
                             error / truth.energy, share));
    }
  }

  static double unit_of(const CodeCall& plan, const CallTruth& truth) {
    return truth.largest / ((1 << (plan.tolerance->precision - 1)) - 1);
  }

  // Largest error of a value: rounding. Unbounded where error feedback may defer values.
  double largest_allowed(const CodeCall& plan, const CallTruth& truth) const {
    if (!plan.tolerance) {
      return 1e-5 * truth.largest;
    }
    const bool is_plain =
        collective::uses_entropy(plan.tolerance->codec) && !world_.tensors[plan.tensor].has_name;
    return is_plain ? 1.001 * unit_of(plan, truth) : HUGE_VAL;
  }

  // Coded calls of a named tensor, one at a time: all that remains owed after a call is the
  // rounding of that call. (Only one of overlapping calls has error feedback.)
  void check_owed(const GoodCalls& calls) {
    for (std::uint32_t tensor = 0; tensor < world_.tensors.size(); ++tensor) {
      if (is_accounted_for(tensor)) {
        check_owed(tensor, calls);
      }
    }
  }

  bool is_accounted_for(std::uint32_t tensor) const {
    return world_.tensors[tensor].has_name && world_.is_in_turn &&
           std::ranges::none_of(world_.calls, [&](const CodeCall& call) {
             return call.tensor == tensor && call.tolerance &&
                    (!collective::uses_entropy(call.tolerance->codec) ||
                     call.tolerance->predicts_scale || call.forgetful);
           });
  }

  void check_owed(std::uint32_t tensor, const GoodCalls& calls) {
    std::map<std::uint32_t, std::vector<double>> owed;  // by epoch
    double unit = 0.0;
    for (const auto& [name, call] : calls) {
      const CodeCall& plan = world_.calls[call->call];
      if (plan.tensor != tensor || !plan.tolerance) {
        continue;
      }
      if (call->report.entropy.sketch.unrecovered > 0) {
        return;  // whole values are still owed
      }
      const CallTruth truth = truth_of(world_, call->call);
      unit = std::max(unit, unit_of(plan, truth));
      std::vector<double>& values = owed[call->epoch];
      values.resize(truth.mean.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] += truth.mean[i] - call->output[i];
      }
      const double largest = std::abs(
          *std::ranges::max_element(values, {}, [](double value) { return std::abs(value); }));
      // Half a unit of rounding; debts may have made the values themselves larger.
      if (largest > 0.6 * unit) {
        fail(*call, fmt::format("leaves {} owed, where {} may be", largest, 0.6 * unit));
      }
    }
  }

  // Largest error as a share of the energy. Unbounded with error feedback, which defers values.
  double share_allowed(const CodeCall& plan) const {
    if (!plan.tolerance || world_.tensors[plan.tensor].has_name ||
        world_.tensors[plan.tensor].count < kEnoughValues) {
      return HUGE_VAL;
    }
    switch (plan.tolerance->codec) {
      case Codec::kPlanes:
        return plan.tolerance->precision >= 8 ? 0.1 : HUGE_VAL;
      case Codec::kBlocks:
        return 0.1;  // at most 1% of the parts are missing
      default:
        return HUGE_VAL;
    }
  }

  static constexpr std::size_t kEnoughValues = 4096;

  const CodeWorld& world_;
  const CodeSoakRecord& record_;
  std::vector<std::string> failures_;
};

}  // namespace

// The positions of nonzero values change slowly from call to call, the same way at all ranks.
std::vector<float> code_input(const CodeWorld& world, std::uint32_t call, std::uint16_t rank) {
  const CodeTensor& tensor = world.tensors[world.calls[call].tensor];
  base::RandomSequence support(
      base::derive_key(world.seed, {kCodeSupportKeys, world.calls[call].tensor, call / 3, 0}));
  base::RandomSequence random(base::derive_key(world.seed, {kCodeValueKeys, call, rank, 0}));
  std::vector<float> values(tensor.count);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool is_there = support.next_unit() < tensor.nonzero || random.next_unit() < 0.001;
    const double scale = i < values.size() / 4 ? 1.0 : 0.1;  // layers have different scales
    values[i] = is_there ? static_cast<float>(scale * (1.0 + random.next_gaussian())) : 0.0F;
  }
  return values;
}

std::vector<std::string> check_codes(const CodeWorld& world, const CodeSoakRecord& record) {
  return CodeChecker(world, record).check();
}

CodeSoakResult run_code_world(std::uint64_t seed) {
  return CodeSoak(draw_code_world(seed)).run();
}

}  // namespace spillway::sim
