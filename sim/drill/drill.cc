// SPDX-License-Identifier: Apache-2.0
#include "sim/drill/drill.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/drill/drill_run.h"
#include "sim/soak/world.h"

namespace spillway::sim {

// ------------------------------------------------------------------ worlds

namespace {

using base::milliseconds;
using base::seconds;

constexpr std::uint32_t kManyRanks = 64;  // from here on heartbeats are rarer and delays short

constexpr std::array<std::string_view, kTroubleKinds> kTroubleNames = {
    "kill", "silence", "pause", "cut", "reset", "pair", "move", "remove", "grow", "join", "slow"};
constexpr std::array<std::string_view, 5> kVictimNames = {"driver", "joiner", "rank", "standby",
                                                          "any"};
constexpr std::array<std::string_view, kDrillPhases> kPhaseNames = {
    "halt", "parked", "accept", "accepted", "chosen", "decided", "fetching", "first step"};

double in_ms(base::Duration duration) {
  return static_cast<double>(duration.count()) * 1e-6;
}

Trouble draw_trouble(SoakDraw& draw, const DrillWorld& world) {
  Trouble trouble;
  trouble.kind =
      draw.pick({TroubleKind::kKill, TroubleKind::kKill, TroubleKind::kKill, TroubleKind::kKill,
                 TroubleKind::kSilence, TroubleKind::kPause, TroubleKind::kCut, TroubleKind::kCut,
                 TroubleKind::kReset, TroubleKind::kPair, TroubleKind::kMove, TroubleKind::kMove,
                 TroubleKind::kRemove, TroubleKind::kGrow, TroubleKind::kJoin, TroubleKind::kSlow});
  trouble.victim = draw.pick({Victim::kDriver, Victim::kJoiner, Victim::kRank, Victim::kRank,
                              Victim::kStandby, Victim::kAny});
  trouble.pick = static_cast<std::uint32_t>(draw.between(0, 1023));
  trouble.count = draw.chance(0.25) ? 2 : 1;
  if (trouble.kind == TroubleKind::kCut) {
    trouble.count = static_cast<std::uint32_t>(draw.between(1, world.ranks));
  }
  const auto length = world.work * static_cast<std::int64_t>(world.steps);
  trouble.at = draw.time(milliseconds(1), std::max(length, milliseconds(8)));
  if (draw.chance(0.5)) {
    trouble.phase = static_cast<DrillPhase>(draw.between(0, kDrillPhases - 1));
    trouble.nth = static_cast<std::uint32_t>(draw.between(1, 2 * world.ranks));
  }
  const bool passes = trouble.kind == TroubleKind::kPause || trouble.kind == TroubleKind::kReset ||
                      draw.chance(0.6);
  if (passes) {
    trouble.lasts = draw.time(milliseconds(20), seconds(20));
  }
  return trouble;
}

void set_size(DrillWorld& world, std::uint32_t ranks, std::uint32_t standbys) {
  world.ranks = ranks;
  world.standbys = standbys;
  if (ranks >= kManyRanks) {
    world.config.heartbeat = milliseconds(250);
    world.most_delay = base::microseconds(60);  // fits the event queue's wheel, which is fastest
  }
}

DrillWorld phase_world(std::uint32_t ranks, const Trouble& start, DrillPhase phase, Trouble then) {
  DrillWorld world;
  set_size(world, ranks, std::max(4U, ranks / 16));
  world.steps = 12;
  world.config.silence = seconds(1);
  world.config.answer_limit = seconds(1);
  world.config.quorum_limit = seconds(4);
  world.config.park_limit = seconds(20);
  then.phase = phase;
  then.at = start.at;
  world.troubles = {start, then};
  return world;
}

}  // namespace

std::string_view trouble_name(TroubleKind kind) {
  return kTroubleNames[static_cast<std::size_t>(kind)];
}
std::string_view victim_name(Victim victim) {
  return kVictimNames[static_cast<std::size_t>(victim)];
}
std::string_view phase_name(DrillPhase phase) {
  return kPhaseNames[static_cast<std::size_t>(phase)];
}

DrillWorld draw_drill_world(std::uint64_t seed, std::uint32_t ranks) {
  SoakDraw draw(seed);
  DrillWorld world;
  world.seed = seed;
  const auto drawn = static_cast<std::uint32_t>(draw.magnitude(2, 12));
  const auto standbys = static_cast<std::uint32_t>(draw.between(0, 4));
  set_size(world, ranks == 0 ? drawn : ranks, standbys);
  world.steps = draw.between(10, 80);
  world.config.seed = seed;
  world.config.silence = draw.time(milliseconds(400), seconds(2));
  world.config.answer_limit = draw.time(milliseconds(200), seconds(2));
  world.config.quorum_limit = draw.time(seconds(2), seconds(10));
  world.config.park_limit = draw.time(seconds(2), seconds(20));
  world.config.size.may_shrink = draw.chance(0.3);
  world.config.size.min_ranks = static_cast<std::uint32_t>(draw.between(1, world.ranks));
  world.config.replace_stragglers = draw.chance(0.3);
  const base::Duration most_delay = draw.time(base::microseconds(50), milliseconds(20));
  world.most_delay = world.ranks < kManyRanks ? most_delay : world.most_delay;
  world.work = draw.time(milliseconds(1), milliseconds(50));
  world.connect = draw.time(milliseconds(1), milliseconds(200));
  world.fetch = draw.time(milliseconds(1), milliseconds(400));
  world.park = draw.time(base::microseconds(100), milliseconds(100));
  world.data_limit = draw.time(milliseconds(50), seconds(2));
  world.tcp_limit = draw.chance(0.5) ? draw.time(milliseconds(500), seconds(8)) : base::Duration();
  world.overwrites = draw.chance(0.5);
  const std::uint64_t troubles = draw.between(1, 5);
  for (std::uint64_t i = 0; i < troubles; ++i) {
    world.troubles.push_back(draw_trouble(draw, world));
  }
  // The first trouble starts at a time, so that phases occur; the others wait for theirs from the
  // start.
  world.troubles.front().phase.reset();
  for (Trouble& trouble : world.troubles) {
    trouble.at = trouble.phase ? base::Duration() : trouble.at;
  }
  return world;
}

std::vector<DrillWorld> phase_worlds(std::uint32_t ranks) {
  const std::array<Trouble, 3> starts = {
      Trouble{
          .kind = TroubleKind::kKill, .victim = Victim::kRank, .pick = 2, .at = milliseconds(50)},
      Trouble{.kind = TroubleKind::kSilence,
              .victim = Victim::kRank,
              .pick = 2,
              .at = milliseconds(50)},
      Trouble{
          .kind = TroubleKind::kMove, .victim = Victim::kRank, .pick = 1, .at = milliseconds(50)}};
  const std::uint32_t half = std::max(ranks / 2 - 1, 1U);
  const std::array<Trouble, 11> thens = {
      Trouble{.kind = TroubleKind::kKill, .victim = Victim::kDriver},
      Trouble{.kind = TroubleKind::kKill, .victim = Victim::kDriver, .count = 2},
      Trouble{.kind = TroubleKind::kKill, .victim = Victim::kJoiner},
      Trouble{.kind = TroubleKind::kKill, .victim = Victim::kRank, .pick = 3},
      Trouble{.kind = TroubleKind::kKill, .victim = Victim::kRank, .count = 2, .pick = 3},
      Trouble{.kind = TroubleKind::kKill, .victim = Victim::kStandby},
      Trouble{.kind = TroubleKind::kSilence, .victim = Victim::kDriver},
      Trouble{.kind = TroubleKind::kSilence, .victim = Victim::kJoiner},
      Trouble{.kind = TroubleKind::kPause, .victim = Victim::kDriver, .lasts = seconds(3)},
      Trouble{.kind = TroubleKind::kCut, .victim = Victim::kDriver, .count = half},
      Trouble{.kind = TroubleKind::kCut,
              .victim = Victim::kDriver,
              .count = half,
              .lasts = seconds(3)}};
  std::vector<DrillWorld> worlds;
  for (const Trouble& start : starts) {
    for (std::size_t phase = 0; phase < kDrillPhases; ++phase) {
      for (const Trouble& then : thens) {
        worlds.push_back(phase_world(ranks, start, static_cast<DrillPhase>(phase), then));
        worlds.back().seed = worlds.size();
        worlds.back().config.seed = worlds.size();
      }
    }
  }
  return worlds;
}

std::string describe(const DrillWorld& world) {
  std::string text = fmt::format(
      "{} ranks, {} standbys, {} steps of {:.1f} ms; silence {:.0f} ms, answer {:.0f} ms, quorum "
      "{:.0f} ms, park {:.0f} ms; delays up to {:.2f} ms{}\n",
      world.ranks, world.standbys, world.steps, in_ms(world.work), in_ms(world.config.silence),
      in_ms(world.config.answer_limit), in_ms(world.config.quorum_limit),
      in_ms(world.config.park_limit), in_ms(world.most_delay),
      world.config.size.may_shrink ? fmt::format("; may shrink to {}", world.config.size.min_ranks)
                                   : "");
  for (const Trouble& trouble : world.troubles) {
    text += fmt::format(
        "  {} {} {}x{} {}{}\n", trouble_name(trouble.kind), victim_name(trouble.victim),
        trouble.pick, trouble.count,
        trouble.phase ? fmt::format("at {} {} after {:.1f} ms", phase_name(*trouble.phase),
                                    trouble.nth, in_ms(trouble.at))
                      : fmt::format("at {:.1f} ms", in_ms(trouble.at)),
        trouble.lasts == base::Duration() ? ""
                                          : fmt::format(" for {:.0f} ms", in_ms(trouble.lasts)));
  }
  return text;
}

// ------------------------------------------------------------------ running and checking

namespace {

class DrillChecker {
 public:
  DrillChecker(const DrillWorld& world, const DrillRecord& record)
      : world_(world), record_(record) {}

  std::vector<std::string> check() && {
    failures_ = record_.violations;
    check_completions();
    check_ends();
    return std::move(failures_);
  }

 private:
  void check_completions() {
    for (const Completion& done : record_.completions) {
      const auto next = record_.decisions.find(done.epoch + 1);
      if (next == record_.decisions.end() || next->second.outcome == membership::Outcome::kEnds) {
        continue;
      }
      const membership::Decision& decision = next->second;
      const bool continued = decision.view.has(done.member);
      if (done.step > decision.step || (continued && done.step == decision.step)) {
        failures_.push_back(
            fmt::format("process {} ended step {} in epoch {}, but epoch {} begins at step {}",
                        done.member, done.step, done.epoch, done.epoch + 1, decision.step));
      }
    }
  }

  void check_ends() {
    const bool survives = must_survive(world_, record_);
    for (std::size_t i = 0; i < record_.processes.size(); ++i) {
      const ProcessRecord& process = record_.processes[i];
      if (process.end == ProcessEnd::kAlive) {
        failures_.push_back(fmt::format("process {} hangs: it waits for {}", i + 1,
                                        process.why.empty() ? "nothing" : process.why));
      }
      if (process.end == ProcessEnd::kDismissed && process.why.empty()) {
        failures_.push_back(fmt::format("process {} ended without a word", i + 1));
      }
      const bool is_spared = !process.is_affected && (!process.is_newcomer || process.was_voter);
      if (survives && is_spared && process.end == ProcessEnd::kDismissed &&
          process.why != "the job is done") {
        failures_.push_back(
            fmt::format("process {} was not touched, but ended: {}", i + 1, process.why));
      }
    }
  }

  const DrillWorld& world_;
  const DrillRecord& record_;
  std::vector<std::string> failures_{};
};

}  // namespace

bool must_survive(const DrillWorld& world, const DrillRecord& record) {
  const auto affected = static_cast<std::size_t>(std::ranges::count_if(
      record.processes,
      [](const ProcessRecord& process) { return process.is_affected && !process.is_newcomer; }));
  const std::size_t voters = world.ranks + world.standbys;
  const bool has_places = affected + record.grown <= world.standbys ||
                          (world.config.size.may_shrink &&
                           world.ranks + world.standbys >= affected + world.config.size.min_ranks);
  return has_places && affected + record.moved < world.ranks && 2 * (voters - affected) > voters;
}

std::vector<std::string> check_drill(const DrillWorld& world, const DrillRecord& record) {
  return DrillChecker(world, record).check();
}

DrillResult run_drill(const DrillWorld& world) {
  DrillResult result{.world = world, .record = DrillRun(world).run()};
  result.failures = check_drill(result.world, result.record);
  return result;
}

}  // namespace spillway::sim
