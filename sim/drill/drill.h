// SPDX-License-Identifier: Apache-2.0
//
// Drills: the real membership::Member of every process of a job, in virtual time, with trouble
// (drill_world.h) and a training that checks itself. Invariants:
//
//   one        each epoch has one decision, the same for all who learn it
//   together   a step's parts come from exactly the ranks of one epoch, and from one state
//   no twins   if epoch e + 1 begins at step s, no member of it has completed step s in epoch e; a
//              rank left behind may complete step s, to which all had contributed, but no more
//   same bits  a job that does not shrink ends with the state of an undisturbed one
//   ends       every living process ends in time: the job is done, or the process says why not
//   goes on    if enough processes are unaffected, the job is done for all of these
//
// A world, and everything that happens in it, is a function of its seed.
//
//   drill_world     what goes wrong            drill_training  what applications do
//   drill_net       connections                drill_run       puts them together
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "elastic/membership/view.h"
#include "sim/drill/drill_world.h"

namespace spillway::sim {

enum class ProcessEnd : std::uint8_t {
  kLives,      // still alive when the world ended: it hangs
  kKilled,     // by the drill
  kDismissed,  // by its member, with a reason
  kAbsent,     // never started
};

struct ProcessRecord {
  ProcessEnd end = ProcessEnd::kLives;
  std::string why{};         // reason of kDismissed; what a kLives process waits for
  bool is_affected = false;  // by some trouble
  bool is_newcomer = false;
  bool was_voter = false;
};

// A rank received all parts of a step.
struct Completion {
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;
  membership::MemberId member = 0;
};

struct DrillRecord {
  std::map<std::uint32_t, membership::Decision> decisions{};  // by epoch
  std::vector<ProcessRecord> processes{};
  std::vector<Completion> completions{};
  std::vector<std::string> wrongs{};                    // violations found during the run
  std::uint32_t moved = 0;                              // ranks asked to move, and stragglers
  std::uint32_t grown = 0;                              // places asked for
  std::array<std::uint64_t, kTroubleKinds> troubles{};  // that happened
  std::array<std::uint64_t, kDrillPhases> in_phase{};   // the same, by phase
  std::uint64_t steps_repeated = 0;
  std::uint64_t stragglers = 0;
  std::uint64_t messages = 0;
  base::Duration longest_change{};  // from the first sign of a change to the first step after it
  base::Instant ended{};
  std::uint64_t digest = 0;
};

struct DrillResult {
  DrillWorld world{};
  DrillRecord record{};
  std::vector<std::string> failures{};  // sentences; empty if all is well
};

// True if so few processes were affected that the job must be done in the end.
bool must_survive(const DrillWorld& world, const DrillRecord& record);
std::vector<std::string> check_drill(const DrillWorld& world, const DrillRecord& record);

DrillResult run_drill(const DrillWorld& world);

}  // namespace spillway::sim
