// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/soak.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "sim/simulation.h"
#include "sim/soak/attack.h"
#include "sim/soak/observer.h"

namespace spillway::sim {

// ------------------------------------------------------------------ checks

namespace {

using transport::Outcome;
using transport::ReceiveReport;

// Clocks are off by up to 5,000 ppm; timers have a granularity.
constexpr double kClockTolerance = 0.01;
constexpr base::Duration kTimerTolerance = base::milliseconds(1);
// This many packets in a row are not all lost unless a link loses this share of them.
constexpr std::uint64_t kHopelessTries = 12;
constexpr double kSevereShare = 0.1;

double milliseconds_of(base::Duration duration) {
  return static_cast<double>(duration.count()) / 1e6;
}

class SoakChecker {
 public:
  SoakChecker(const SoakWorld& world, const SoakRecord& record) : world_(world), record_(record) {}

  std::vector<std::string> run() {
    failures_ = record_.violations;
    for (const MessageRecord& message : record_.messages) {
      message_ = &message;
      if (message.received) {
        check_report(*message.received);
        check_tensor();
        check_deadline(*message.received);
      }
      check_ends();
    }
    message_ = nullptr;
    for (const DeathRecord& death : record_.deaths) {
      check_death(death);
    }
    for (const EndpointRecord& endpoint : record_.endpoints) {
      check_endpoint(endpoint);
    }
    if (record_.packets_left > 0 && !record_.background_running) {
      fail(fmt::format("{} packets were never released", record_.packets_left));
    }
    return std::move(failures_);
  }

 private:
  void fail(const std::string& what) {
    if (message_ == nullptr) {
      failures_.push_back(what);
      return;
    }
    const Flow& flow = message_->flow;
    failures_.push_back(fmt::format(
        "job {} flow {} (operation {} signature {} piece {}, host {} to {}, {} packets): {}",
        flow.job, flow.id, flow.message.operation, flow.message.signature, flow.message.piece,
        flow.from, flow.to, message_->packets, what));
  }

  const scenario::Job& job() const { return world_.scenario.jobs[message_->flow.job]; }

  std::optional<base::Instant> death_of(HostId host) const {
    std::optional<base::Instant> death;
    for (const scenario::Fault& fault : world_.scenario.faults) {
      if (fault.kind == scenario::FaultKind::kHostDeath && fault.host == host) {
        death = std::min(death.value_or(fault.from), fault.from);
      }
    }
    return death;
  }

  // ---------------------------------------------------------------- promises

  void check_report(const ReceiveReport& report) {
    const transport::LossPolicy& loss = message_->flow.loss;
    std::uint32_t delivered = 0;
    std::uint32_t required_missing = 0;
    for (std::uint32_t packet = 0; packet < message_->packets; ++packet) {
      const std::uint8_t planes = report.planes.at(packet);
      delivered += planes >= loss.min_planes ? 1 : 0;
      required_missing +=
          planes < loss.min_planes && message_->importance[packet] == SPILLWAY_IMPORTANCE_REQUIRED
              ? 1
              : 0;
      if (planes > 0 && !message_->transmitted[packet]) {
        fail(fmt::format("packet {} arrived, but was never sent", packet));
      }
    }
    if (delivered != report.delivered) {
      fail(fmt::format("{} packets arrived, the report says {}", delivered, report.delivered));
    }
    check_outcome(report.outcome, message_->packets - delivered, required_missing);
  }

  void check_outcome(Outcome outcome, std::uint32_t missing, std::uint32_t required_missing) {
    const std::uint32_t allowed = message_->flow.loss.allowed_missing(message_->packets);
    if (outcome == Outcome::kEverything && missing > 0) {
      fail(fmt::format("ended with everything, but {} are missing", missing));
    }
    if (outcome == Outcome::kWithinBudget && missing > allowed) {
      fail(fmt::format("ended within its budget, but {} are missing where {} may be", missing,
                       allowed));
    }
    if ((outcome == Outcome::kEverything || outcome == Outcome::kWithinBudget) &&
        required_missing > 0) {
      fail(fmt::format("ended well, but {} required packets are missing", required_missing));
    }
    if (outcome == Outcome::kCancelled) {
      fail("ended as cancelled, but nobody cancels here");
    }
  }

  void check_tensor() {
    if (!message_->is_exact) {
      fail("the tensor or its report is not what the planes that came make");
    }
    if (!message_->guards_intact) {
      fail("something was written beside the tensor");
    }
  }

  // ---------------------------------------------------------------- ends

  void check_deadline(const ReceiveReport& report) {
    const base::Duration took = message_->received_at - message_->started;
    if (!message_->deadline) {
      if (report.outcome == Outcome::kDeadline) {
        fail("ended at its deadline, but has none");
      }
      return;
    }
    const auto deadline = static_cast<double>(message_->deadline->count());
    const auto least = static_cast<std::int64_t>(deadline * (1.0 - kClockTolerance));
    const auto most = static_cast<std::int64_t>(deadline * (1.0 + kClockTolerance));
    if (report.outcome == Outcome::kDeadline && took.count() < least) {
      fail(fmt::format("ended at its deadline of {} ms, but after {} ms",
                       milliseconds_of(*message_->deadline), milliseconds_of(took)));
    }
    if (took > base::nanoseconds(most) + kTimerTolerance) {
      fail(fmt::format("ended {} ms after it began, with a deadline of {} ms",
                       milliseconds_of(took), milliseconds_of(*message_->deadline)));
    }
  }

  void check_ends() {
    const Flow& flow = message_->flow;
    if (message_->expected && !death_of(flow.to)) {
      check_end("receiver", message_->received.has_value(), message_->received_at);
    }
    if (message_->sent && !death_of(flow.from)) {
      check_end("sender", message_->reported.has_value(), message_->reported_at);
    }
  }

  void check_end(const char* whose, bool has_ended, base::Instant end) {
    const base::Instant begin = std::max(message_->started, world_.faults_over);
    if (!has_ended) {
      fail(fmt::format("never ended at its {}", whose));
    } else if (end > begin + world_.message_limit) {
      fail(fmt::format("ended at its {} only after {} ms; {} ms are the limit", whose,
                       milliseconds_of(end - begin), milliseconds_of(world_.message_limit)));
    }
  }

  bool loses_severely() const {
    return std::ranges::any_of(world_.scenario.faults, [](const scenario::Fault& fault) {
      // A burst counts in packets: on a link with little traffic a long one outlasts any timeout.
      return fault.kind == scenario::FaultKind::kDown || fault.kind == scenario::FaultKind::kGray ||
             fault.kind == scenario::FaultKind::kBursty ||
             ((fault.kind == scenario::FaultKind::kLoss ||
               fault.kind == scenario::FaultKind::kCorrupt) &&
              fault.share >= kSevereShare);
    });
  }

  void check_death(const DeathRecord& death) {
    const std::optional<base::Instant> died = death_of(death.peer);
    if ((died && *died <= death.at) || death.gave_up_first) {
      return;
    }
    const std::string who =
        fmt::format("job {} on host {} gave up host {} at {} ms", death.job, death.host, death.peer,
                    milliseconds_of(death.at.since_zero()));
    const base::Duration timeout = world_.scenario.jobs[death.job].spillway.exchange.peer_timeout;
    if (death.silence < timeout) {
      fail(fmt::format("{}, {} ms after hearing of it, before the timeout of {} ms", who,
                       milliseconds_of(death.silence), milliseconds_of(timeout)));
    } else if (death.unattempted >= timeout && death.unanswered < timeout / 2) {
      fail(fmt::format("{}, which lives, heard of it {} ms ago, and has said nothing for {} ms",
                       who, milliseconds_of(death.unanswered), milliseconds_of(death.unattempted)));
    } else if (death.lost_tries >= kHopelessTries && !loses_severely()) {
      fail(fmt::format("{}, which lives and had sent {} packets that no fault explains the loss of",
                       who, death.lost_tries));
    }
  }

  // ---------------------------------------------------------------- bounds

  void check_endpoint(const EndpointRecord& endpoint) {
    const std::string who = fmt::format("job {} on host {}", endpoint.job, endpoint.host);
    if (endpoint.counters.control_taken > endpoint.control_arrived) {
      fail(fmt::format("{} took {} control packets, but only {} came", who,
                       endpoint.counters.control_taken, endpoint.control_arrived));
    }
    if (endpoint.memory_peak > endpoint.memory_bound) {
      fail(fmt::format("{} used {} bytes of memory; {} are its bound", who, endpoint.memory_peak,
                       endpoint.memory_bound));
    }
    if (!endpoint.is_idle && !death_of(endpoint.host)) {
      fail(fmt::format("{} still waits for something after everything has ended", who));
    }
  }

  const SoakWorld& world_;
  const SoakRecord& record_;
  const MessageRecord* message_ = nullptr;  // subject of failures
  std::vector<std::string> failures_;
};

}  // namespace

std::vector<std::string> check_soak(const SoakWorld& world, const SoakRecord& record) {
  return SoakChecker(world, record).run();
}

// ------------------------------------------------------------------ running a world

namespace {

// Depends on the order of what is added.
class Digest {
 public:
  void add(std::uint64_t value) {
    state_ = (state_ ^ value) * 0x9E3779B97F4A7C15ULL ^ state_ >> 29;
  }
  void add(base::Instant when) { add(static_cast<std::uint64_t>(when.since_zero().count())); }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 1;
};

void add_flow(const FlowRecord& record, Digest& digest) {
  digest.add(record.start);
  digest.add(record.end);
  digest.add(static_cast<std::uint64_t>(record.result.end));
  digest.add(record.result.delivered);
  digest.add(record.result.trimmed);
}

void add_counters(const transport::EndpointCounters& counters, Digest& digest) {
  for (const std::uint64_t count :
       {counters.data_sent, counters.data_resent, counters.control_sent, counters.data_taken,
        counters.control_taken, counters.marked, counters.trimmed, counters.duplicate,
        counters.finished, counters.replayed, counters.contradicting}) {
    digest.add(count);
  }
}

std::uint64_t digest_of(const ScenarioResult& result, Network& network, const SoakRecord& record) {
  Digest digest;
  for (const FlowRecord& flow : result.flows) {
    add_flow(flow, digest);
  }
  for (const EndpointRecord& endpoint : record.endpoints) {
    add_counters(endpoint.counters, digest);
    digest.add(endpoint.memory_peak);
  }
  for (const MessageRecord& message : record.messages) {
    digest.add(message.received_at);
    digest.add(message.reported_at);
  }
  const NetworkTotals totals = network.totals();
  for (const std::uint64_t count :
       {totals.sent, totals.delivered, totals.lost, totals.duplicated, network.events_run()}) {
    digest.add(count);
  }
  digest.add(network.now());
  return digest.value();
}

AttackStack* add_attacker(const AttackPlan& plan, Network& network) {
  auto made = std::make_unique<AttackStack>(plan, network.hosts(), network.pool());
  AttackStack* attacker = made.get();
  network.add_stack(plan.host, std::move(made));
  network.wake(plan.host);
  return attacker;
}

// Unfinished background flows keep packets in the network.
bool background_running(const SoakWorld& world, const ScenarioResult& result) {
  return std::ranges::any_of(result.flows, [&](const FlowRecord& record) {
    return !record.ended &&
           world.scenario.jobs[record.flow.job].pattern.kind == scenario::PatternKind::kBackground;
  });
}

// By then senders know of all ends, dead peers are given up, and the attacker has finished.
base::Instant quiet_from(const SoakWorld& world, base::Instant last_end) {
  const base::Duration attack = world.attack
                                    ? world.attack->gap * (std::int64_t{world.attack->packets} + 1)
                                    : base::Duration();
  return std::max(last_end, world.faults_over) + world.message_limit + attack;
}

}  // namespace

SoakResult run_soak_world(std::uint64_t seed) {
  SoakResult soak{.world = draw_soak_world(seed), .record = {}, .failures = {}};
  const SoakWorld& world = soak.world;
  SoakObserver observer;
  Simulation simulation(world.scenario, &observer);
  SPILLWAY_CHECK(simulation.build().ok());
  Network& network = simulation.network();
  observer.follow(network, world.attack ? add_attacker(*world.attack, network) : nullptr);
  const ScenarioResult result = simulation.run({});
  network.run_until(quiet_from(world, network.now()));
  for (std::size_t job = 0; job < world.scenario.jobs.size(); ++job) {
    for (const SpillwayStack* stack : simulation.stacks(job).spillway()) {
      observer.finish(*stack);
    }
  }
  SoakRecord& record = observer.record();
  record.packets = network.totals().sent;
  record.packets_left = network.pool().in_use();
  record.background_running = background_running(world, result);
  record.digest = digest_of(result, network, record);
  soak.failures = check_soak(world, record);
  soak.record = std::move(record);
  return soak;
}

}  // namespace spillway::sim
