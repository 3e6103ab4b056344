// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/soak.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "sim/simulation.h"
#include "sim/soak/attack.h"
#include "sim/soak/checks.h"
#include "sim/soak/watch.h"

namespace spillway::sim {
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
bool others_go_on(const SoakWorld& world, const ScenarioResult& result) {
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
  SoakWatch watch;
  Simulation simulation(world.scenario, &watch);
  SPILLWAY_CHECK(simulation.build().ok());
  Network& network = simulation.network();
  watch.follow(network, world.attack ? add_attacker(*world.attack, network) : nullptr);
  const ScenarioResult result = simulation.run({});
  network.run_until(quiet_from(world, network.now()));
  for (std::size_t job = 0; job < world.scenario.jobs.size(); ++job) {
    for (const SpillwayStack* stack : simulation.stacks(job).spillway()) {
      watch.finish(*stack);
    }
  }
  SoakRecord& record = watch.record();
  record.packets = network.totals().sent;
  record.packets_left = network.pool().in_use();
  record.others_go_on = others_go_on(world, result);
  record.digest = digest_of(result, network, record);
  soak.failures = check_soak(world, record);
  soak.record = std::move(record);
  return soak;
}

}  // namespace spillway::sim
