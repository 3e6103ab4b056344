// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/code_world.h"

#include <fmt/format.h>

#include "base/check.h"
#include "sim/scenario/topology.h"
#include "sim/soak/draw.h"
#include "sim/soak/faults.h"
#include "sim/soak/small_network.h"

namespace spillway::sim {
namespace {

using collective::Algorithm;
using collective::SumCode;
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
    world_.text += passing_faults(faults.draw());
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
    const auto code = static_cast<SumCode>(draw_.between(
        remembers ? static_cast<unsigned>(SumCode::kCoded) : 0, collective::kSumCodes - 1));
    const bool is_whole = collective::is_coded(code);
    Tolerance tolerance{.code = code,
                        .precision = code == SumCode::kLevels
                                         ? draw_.pick<std::uint8_t>({2, 3, 4, 8})
                                         : draw_.pick<std::uint8_t>({4, 8, 12, 16}),
                        .loss_bound_ppm = is_whole ? 0U : draw_.pick<std::uint32_t>({0, 10'000})};
    tolerance.predicts_scale =
        code != SumCode::kPlanes && world_.tensors[call.tensor].has_name && draw_.chance(0.3);
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
                  collective::sum_code_name(call.tolerance->code), call.tolerance->precision,
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

}  // namespace spillway::sim
