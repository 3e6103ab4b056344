// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/sum_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "sim/packet.h"
#include "sim/soak/draw.h"
#include "sim/soak/faults.h"
#include "sim/soak/small_network.h"

namespace spillway::sim {
namespace {

constexpr base::Duration kSumPatience = base::seconds(60);
constexpr std::uint64_t kMaxRestarts = 3;

class SumWorldBuilder {
 public:
  explicit SumWorldBuilder(std::uint64_t seed) : draw_(seed) { world_.seed = seed; }

  SumWorld build() {
    world_.text = OrderedText{"seed {}\n{}{}{}", world_.seed, draw_topology(),
                              draw_small_switch(draw_), draw_adders()}
                      .text;
    take();
    const std::uint64_t jobs = draw_.between(1, 3);
    for (std::uint64_t job = 0; job < jobs; ++job) {
      world_.jobs.push_back(draw_job(static_cast<std::uint16_t>(job + 1)));
    }
    draw_faults();
    take();
    draw_attack();
    return world_;
  }

 private:
  void take() {
    base::Result<scenario::Scenario> parsed = scenario::parse_scenario(world_.text);
    SPILLWAY_CHECK(parsed.ok());
    world_.scenario = std::move(parsed).value();
  }

  std::string draw_topology() {
    hosts_ = static_cast<std::uint32_t>(draw_.between(3, 10));
    is_one_switch_ = draw_.chance(0.5);
    return draw_small_topology(draw_, hosts_, is_one_switch_);
  }

  std::string draw_adder(std::string_view switches, std::uint32_t level) {
    const std::uint64_t slots = draw_.magnitude(1, 256);
    const auto policy =
        draw_.pick<std::string_view>({"static", "first-come", "preemptive", "preemptive"});
    std::string line =
        OrderedText{"aggregate switch={} level={} slots={} policy={} lease={}",
                    switches,
                    level,
                    slots,
                    policy,
                    as_text(draw_.time(base::microseconds(20), base::milliseconds(100)))}
            .text;
    if (policy == "static") {
      line += OrderedText{" pools={}", draw_.between(1, std::min<std::uint64_t>(slots, 3))}.text;
    }
    if (draw_.chance(0.2)) {
      line += OrderedText{" limits={}:{}", draw_.between(1, 3), draw_.between(1, slots)}.text;
    }
    return line + "\n";
  }

  std::string draw_adders() {
    if (is_one_switch_) {
      return draw_adder("switch0", draw_.chance(0.1) ? 1 : 0);
    }
    std::string lines;
    if (draw_.chance(0.85)) {
      lines += draw_adder("leaf*", draw_.chance(0.1) ? 1 : 0);
    }
    if (draw_.chance(0.7)) {
      lines += draw_adder("spine*", draw_.chance(0.15) ? 0 : 1);
    }
    return lines;
  }

  SumJobPlan draw_job(std::uint16_t number) {
    SumJobPlan job;
    job.number = number;
    job.ranks = static_cast<std::uint16_t>(draw_.between(2, hosts_));
    job.first_host = static_cast<HostId>(draw_.between(0, hosts_ - job.ranks));
    job.operations = static_cast<std::uint32_t>(draw_.between(1, 3));
    const std::uint64_t pieces = draw_.between(1, 3);
    for (std::uint64_t piece = 0; piece < pieces; ++piece) {
      job.owners.push_back(static_cast<std::uint16_t>(draw_.between(0, job.ranks - 1U)));
    }
    job.chunks = static_cast<std::uint32_t>(draw_.magnitude(1, 40));
    job.loss_bound_ppm = draw_.pick<std::uint32_t>({0, 0, 10'000, 100'000});
    job.urgency = static_cast<std::uint8_t>(draw_.between(0, 255));
    job.is_wrong_about_need = draw_.chance(0.15);
    job.owners_contribute = draw_.chance(0.8);
    job.gap = draw_.time(base::microseconds(1), base::milliseconds(2));
    job.jitter = draw_.time(base::nanoseconds(100), base::milliseconds(2));
    return job;
  }

  void draw_faults() {
    const base::Result<scenario::Topology> topology = scenario::build_topology(world_.scenario);
    SPILLWAY_CHECK(topology.ok());
    const base::Duration duration = base::milliseconds(5);
    SoakFaults faults(draw_, *topology, duration, base::milliseconds(10));
    world_.text += passing_faults(faults.draw());
    for (std::uint64_t left = draw_.between(0, kMaxRestarts); left > 0; --left) {
      const std::uint64_t which = draw_.between(0, topology->switch_names.size() - 1);
      world_.text +=
          OrderedText{"fault kind=restart switch={} from={}", topology->switch_names[which],
                      as_text(draw_.time(base::microseconds(1), duration))}
              .text +
          "\n";
    }
    world_.limit = faults.over() + kSumPatience;
  }

  void draw_attack() {
    if (draw_.chance(0.4)) {
      world_.attack = SumAttack{.host = static_cast<HostId>(draw_.between(0, hosts_ - 1)),
                                .packets = static_cast<std::uint32_t>(draw_.between(5, 100)),
                                .gap = draw_.time(base::nanoseconds(500), base::microseconds(200))};
    }
  }

  SoakDraw draw_;
  SumWorld world_;
  std::uint32_t hosts_ = 0;
  bool is_one_switch_ = true;
};

}  // namespace

SumWorld draw_sum_world(std::uint64_t seed) {
  return SumWorldBuilder(seed).build();
}

std::string describe(const SumWorld& world) {
  std::string text = fmt::format("# world of sums {}\n{}", world.seed, world.text);
  for (const SumJobPlan& job : world.jobs) {
    text += fmt::format(
        "# job {}: {} ranks from host {}, {} operations of {} pieces (owners {}) of {} chunks, "
        "bound {} ppm, urgency {}{}{}, {} apart, ranks up to {} later\n",
        job.number, job.ranks, job.first_host, job.operations, job.owners.size(),
        fmt::join(job.owners, " "), job.chunks, job.loss_bound_ppm, job.urgency,
        job.is_wrong_about_need ? ", wrong about need" : "",
        job.owners_contribute ? "" : ", owners contribute nothing", as_text(job.gap),
        as_text(job.jitter));
  }
  if (world.attack) {
    text += fmt::format("# attacker on host {}: {} packets, {} apart\n", world.attack->host,
                        world.attack->packets, as_text(world.attack->gap));
  }
  return text;
}

}  // namespace spillway::sim
