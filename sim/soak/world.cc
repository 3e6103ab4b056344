// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "sim/simulation.h"

namespace spillway::sim {
namespace {

// Generous upper bounds of a message's time: its world's bytes this many times over the slowest
// link, this many probes one after the other, and this many peer timeouts.
constexpr std::int64_t kSlowdown = 64;
constexpr std::int64_t kProbes = 400;
constexpr std::int64_t kTimeouts = 3;

// Queues hold at least this many packets of the largest size, or nothing would ever pass.
constexpr std::uint32_t kQueuePackets = 4;
constexpr std::uint32_t kMaxUsed = 8;
constexpr std::uint32_t kControlQueueMin = 4096;  // three of the longest control packets

// The period of the packet counters' low bits, which packets carry.
constexpr std::uint64_t kTurn = std::uint64_t{1} << 32;

std::string text_of(base::Duration duration) {
  return fmt::format("{}ns", duration.count());
}

template <typename Key>
std::uint32_t largest(const std::map<Key, std::uint32_t>& counts) {
  std::uint32_t most = 0;
  for (const auto& [key, count] : counts) {
    most = std::max(most, count);
  }
  return most;
}

class WorldBuilder {
 public:
  explicit WorldBuilder(std::uint64_t seed) : draw_(seed) { world_.seed = seed; }

  SoakWorld build() {
    draw_topology();
    std::string jobs;
    const std::uint64_t count = draw_.between(1, 3);
    for (std::uint64_t job = 0; job < count; ++job) {
      jobs += draw_job(static_cast<std::uint32_t>(count));
    }
    world_.text = OrderedText{"seed {}\n{}{}{}", world_.seed, topology_, draw_switch(), jobs}.text;
    take(world_.text);
    duration_ = base::transmission_time(base::bytes(count_bytes()), slowest_);
    if (draw_.chance(0.3)) {
      world_.text += draw_background();
    }
    draw_faults();
    take(world_.text);
    set_limits();
    draw_attack();
    return world_;
  }

 private:
  void take(const std::string& text) {
    base::Result<scenario::Scenario> parsed = scenario::parse_scenario(text);
    SPILLWAY_CHECK(parsed.ok());
    world_.scenario = std::move(parsed).value();
  }

  void draw_topology() {
    const auto gigabits = draw_.pick<std::uint32_t>({1, 2, 10, 25, 40, 100});
    slowest_ = base::gigabits_per_second(gigabits);
    const std::string link =
        OrderedText{"rate={}gbit delay={} spreading={}", gigabits,
                    text_of(draw_.time(base::nanoseconds(100), base::microseconds(20))),
                    draw_.pick<std::string_view>({"flow", "packet"})}
            .text;
    hosts_ = static_cast<std::uint32_t>(draw_.magnitude(2, 13));
    const std::uint64_t kind = draw_.between(0, 7);
    if (kind == 0) {
      hosts_ = 16;
      topology_ = fmt::format("topology fat-tree k=4 {}\n", link);
    } else if (kind <= 4) {
      draw_leaf_spine(gigabits, link);
    } else {
      topology_ = fmt::format("topology one-switch hosts={} {}\n", hosts_, link);
    }
  }

  void draw_leaf_spine(std::uint32_t gigabits, const std::string& link) {
    hosts_ = std::max(hosts_, 3U);
    const auto uplink = std::max<std::uint32_t>(1, gigabits / draw_.pick<std::uint32_t>({1, 1, 4}));
    slowest_ = base::gigabits_per_second(uplink);
    topology_ =
        OrderedText{
            "topology leaf-spine hosts={} leaves={} spines={} links={} uplink-rate={}gbit {}\n",
            hosts_,
            draw_.between(2, 3),
            draw_.between(1, 3),
            draw_.between(1, 2),
            uplink,
            link}
            .text;
  }

  // ---------------------------------------------------------------- jobs

  std::string draw_job(std::uint32_t jobs) {
    const bool real_bytes = draw_.chance(0.4);
    const auto packet = draw_.pick<std::uint32_t>({600, 1024, 1472, 1472, 4096, 8972});
    largest_packet_ = std::max(largest_packet_, packet);
    const auto planes = draw_.pick<std::uint32_t>({5, 8, 16, 32});
    std::string job =
        OrderedText{"job protocol=spillway packet={} precision={} checks={} real-bytes={}", packet,
                    planes, draw_.pick<std::string>({"tags", "tags", "encryption", "tags"}),
                    real_bytes ? "yes" : "no"}
            .text;
    job += draw_pattern(jobs);
    job += draw_promise(planes);
    job += draw_tuning();
    return job + "\n";
  }

  std::string draw_pattern(std::uint32_t jobs) {
    const std::uint64_t budget = draw_.magnitude(20'000, 8'000'000) / jobs;
    const std::uint64_t used = draw_.between(2, std::min(hosts_, kMaxUsed));
    const std::string where =
        OrderedText{" hosts={} first-host={}", used, draw_.between(0, hosts_ - used)}.text;
    const std::uint64_t steps = draw_.magnitude(1, 5);
    const auto bytes = [&](std::uint64_t flows) {
      return std::max<std::uint64_t>(1, budget / flows / steps);
    };
    switch (draw_.between(0, 4)) {
      case 0:
        return fmt::format("{} pattern=incast bytes={} steps={}", where, bytes(used - 1), steps);
      case 1:
        return fmt::format("{} pattern=all-to-all bytes={} steps={}", where,
                           bytes(used * (used - 1)), steps);
      case 2:
        return fmt::format("{} pattern=permutation bytes={} steps={}", where, bytes(used), steps);
      case 3:
        return fmt::format("{} pattern=ring bytes={}", where, bytes(2 * used));
      default:
        return OrderedText{
            "{} pattern=parameter-server bytes={} steps={} servers={} layers={} compute={}",
            where,
            bytes(2 * used),
            steps,
            draw_.between(1, used - 1),
            draw_.between(1, 4),
            text_of(draw_.time(base::nanoseconds(1), base::microseconds(200)))}
            .text;
    }
  }

  std::string draw_promise(std::uint32_t planes) {
    std::string promise =
        OrderedText{" loss-bound={}% min-planes={} priority={}",
                    draw_.pick<std::string_view>({"0", "0.1", "1", "1", "10"}),
                    draw_.chance(0.7) ? 1 : draw_.between(1, planes), draw_.between(0, 7)}
            .text;
    if (draw_.chance(0.3)) {
      promise += OrderedText{" required={}%", draw_.between(1, 20)}.text;
    }
    if (draw_.chance(0.3)) {
      promise += OrderedText{" unimportant={}%", draw_.between(1, 60)}.text;
    }
    if (draw_.chance(0.3)) {
      promise += OrderedText{" importance={}", draw_.between(0, 7)}.text;
    }
    if (draw_.chance(0.15)) {
      promise += OrderedText{" deadline={}",
                             text_of(draw_.time(base::microseconds(50), base::milliseconds(100)))}
                     .text;
    }
    return promise;
  }

  std::string draw_tuning() {
    const auto probe_max_ms = draw_.pick<std::uint32_t>({5, 20, 100});
    std::string tuning =
        OrderedText{
            " paths={} burst={} report={} probe-min={}us probe-max={}ms "
            "peer-timeout={}ms",
            draw_.between(1, 16),
            draw_.between(1, 32),
            draw_.between(1, 32),
            draw_.pick<std::uint32_t>({50, 200, 1000}),
            probe_max_ms,
            probe_max_ms * draw_.pick<std::uint32_t>({15, 20, 40})}
            .text;
    if (draw_.chance(0.3)) {
      tuning += OrderedText{" trimmed-target={}%", draw_.between(1, 30)}.text;
    }
    if (draw_.chance(0.3)) {
      tuning += OrderedText{" unsolicited={}", draw_.magnitude(1, 200'000)}.text;
    }
    if (draw_.chance(0.4)) {
      const std::uint64_t initial = draw_.magnitude(2'000, 1'000'000);
      tuning += OrderedText{" window-initial={} window-max={}", initial,
                            initial * draw_.pick<std::uint64_t>({1, 2, 16})}
                    .text;
    }
    if (draw_.chance(0.25)) {
      const auto edge = draw_.pick<std::uint64_t>({kTurn / 2, kTurn, kTurn, 2 * kTurn});
      tuning += fmt::format(" first-number={}", edge - draw_.magnitude(1, 2'000));
    }
    return tuning;
  }

  // ---------------------------------------------------------------- switches

  std::string draw_switch() {
    const std::uint32_t least = kQueuePackets * (largest_packet_ + kFrameHeaderBytes);
    const std::uint64_t queue = draw_.magnitude(least, std::max(2 * least, 1'000'000U));
    const auto mode =
        draw_.pick<std::string_view>({"drop-tail", "ecn", "trim", "spillway", "spillway"});
    std::string port =
        OrderedText{"switch mode={} queue={} priorities={}", mode, queue, draw_.between(1, 8)}.text;
    if (mode == "ecn") {
      const std::uint64_t from = draw_.between(queue / 8, queue - 1);
      port += OrderedText{" red-min={} red-max={} red-probability={}%", from,
                          draw_.between(from, queue), draw_.between(1, 100)}
                  .text;
    } else if (mode != "drop-tail") {
      port += OrderedText{" control-queue={} control-share={}% trim={} ecn={} early-drop={}",
                          draw_.magnitude(kControlQueueMin, 128 * 1024),
                          draw_.between(10, 100),
                          draw_.pick<std::uint32_t>({0, 206, 206, 256, 512}),
                          draw_.between(queue / 8, queue),
                          draw_.chance(0.3) ? 0 : draw_.between(queue / 2, queue)}
                  .text;
    }
    return port + "\n";
  }

  std::string draw_background() {
    return OrderedText{"background protocol={} load={}% until={} bytes-min=1000 bytes-max=30000\n",
                       draw_.pick<std::string_view>({"dctcp", "newreno"}), draw_.between(2, 25),
                       text_of(duration_ + base::microseconds(20))}
        .text;
  }

  // ---------------------------------------------------------------- the rest

  void draw_faults() {
    const base::Result<scenario::Topology> topology = scenario::build_topology(world_.scenario);
    SPILLWAY_CHECK(topology.ok());
    base::Duration longest_timeout;
    for (const scenario::Job& job : world_.scenario.jobs) {
      longest_timeout = std::max(longest_timeout, job.spillway.exchange.peer_timeout);
    }
    SoakFaults faults(draw_, *topology, duration_, longest_timeout);
    world_.text += faults.draw();
    world_.faults_over = faults.over();
  }

  std::int64_t count_bytes() {
    std::int64_t bytes = 0;
    for (scenario::Job& job : world_.scenario.jobs) {
      const base::Result<scenario::Workload> workload = scenario::plan_workload(job.pattern);
      SPILLWAY_CHECK(workload.ok());
      for (const scenario::PlannedFlow& planned : workload->flows) {
        bytes += static_cast<std::int64_t>(planned.flow.bytes) + largest_packet_;
      }
    }
    return bytes;
  }

  // Tables no larger than the job needs. Messages that ended two steps ago may be evicted.
  void limit_tables(const scenario::Workload& workload, transport::EndpointLimits& limits) {
    std::map<HostId, std::uint32_t> incoming;
    std::map<HostId, std::uint32_t> outgoing;
    std::map<std::pair<HostId, std::uint32_t>, std::uint32_t> in_step;
    for (const scenario::PlannedFlow& planned : workload.flows) {
      ++incoming[planned.flow.to];
      ++outgoing[planned.flow.from];
      ++in_step[{planned.flow.to, planned.flow.message.operation}];
    }
    limits.peers = hosts_;
    limits.incoming_messages = largest(incoming);
    limits.outgoing_messages = largest(outgoing);
    limits.finished_kept = draw_.chance(0.3) ? 2 * largest(in_step) : limits.incoming_messages;
  }

  void set_limits() {
    base::Duration probe_max;
    base::Duration timeout;
    for (scenario::Job& job : world_.scenario.jobs) {
      if (job.pattern.kind == scenario::PatternKind::kBackground) {
        continue;
      }
      const transport::ExchangeConfig& exchange = job.spillway.exchange;
      probe_max = std::max(probe_max, exchange.probe_max);
      timeout = std::max(timeout, exchange.peer_timeout);
      limit_tables(scenario::plan_workload(job.pattern).value(), job.spillway.limits);
    }
    world_.message_limit = duration_ * kSlowdown + probe_max * kProbes + timeout * kTimeouts;
    world_.scenario.limit = world_.faults_over.since_zero() + world_.message_limit * 2;
  }

  void draw_attack() {
    if (draw_.chance(0.5)) {
      const auto host = static_cast<HostId>(draw_.between(0, hosts_ - 1));
      const auto packets = static_cast<std::uint32_t>(draw_.between(50, 400));
      const base::Duration gap = draw_.time(base::nanoseconds(100), base::milliseconds(20));
      world_.attack = {.host = host, .packets = packets, .gap = gap, .seed = world_.seed};
    }
  }

  SoakDraw draw_;
  SoakWorld world_;
  std::string topology_;
  std::uint32_t hosts_ = 0;
  std::uint32_t largest_packet_ = 0;
  base::BitRate slowest_;
  base::Duration duration_;  // time of all jobs' bytes over the slowest link
};

}  // namespace

SoakWorld draw_soak_world(std::uint64_t seed) {
  return WorldBuilder(seed).build();
}

std::string describe(const SoakWorld& world) {
  std::string text = fmt::format("# soak world {}\n{}", world.seed, world.text);
  if (world.attack) {
    text += fmt::format("# attacker on host {}: {} packets, {} apart\n", world.attack->host,
                        world.attack->packets, text_of(world.attack->gap));
  }
  return text + fmt::format("# faults over at {}, a message may take {}\n",
                            text_of(world.faults_over.since_zero()), text_of(world.message_limit));
}

}  // namespace spillway::sim
