// SPDX-License-Identifier: Apache-2.0
#include "sim/drill/drill.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/drill/drill_run.h"

namespace spillway::sim {
namespace {

class DrillJudge {
 public:
  DrillJudge(const DrillWorld& world, const DrillRecord& record) : world_(world), record_(record) {}

  std::vector<std::string> judge() && {
    failures_ = record_.wrongs;
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
      const bool went_on = decision.view.has(done.member);
      if (done.step > decision.step || (went_on && done.step == decision.step)) {
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
      if (process.end == ProcessEnd::kLives) {
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
  return DrillJudge(world, record).judge();
}

DrillResult run_drill(const DrillWorld& world) {
  DrillResult result{.world = world, .record = DrillRun(world).run()};
  result.failures = check_drill(result.world, result.record);
  return result;
}

}  // namespace spillway::sim
