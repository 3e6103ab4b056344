// SPDX-License-Identifier: Apache-2.0
//
// Drills: the real membership::Member of every process of a job, in virtual time, with trouble
// (drill_world.h) and a training that keeps books. Whatever happens,
//
//   one        of an epoch there is one decision, the same for all who hear of it
//   together   a step's parts come from exactly the ranks of one epoch, and from one state
//   no twins   once epoch e + 1 begins at step s, nobody of it has gone beyond s in epoch e; who
//   was
//              left behind may at most end step s, to which all had given their parts
//   same bits  a job that does not shrink ends with the state of an undisturbed one
//   ends       every process that lives ends in time: the job is done, or it says why not
//   goes on    where enough were spared, the job is done, for all that were
//
// A world is a function of its seed, and so is all that happens in it.
//
//   drill_world     what goes wrong            drill_training  what applications do
//   drill_net       connections                drill_run       puts them together
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "membership/view.h"
#include "sim/drill/drill_world.h"

namespace spillway::sim {

enum class ProcessEnd : std::uint8_t {
  kLives,      // still, when the world ended: it hangs
  kKilled,     // by us
  kDismissed,  // by its own word
  kAbsent,     // never came
};

struct ProcessRecord {
  ProcessEnd end = ProcessEnd::kLives;
  std::string why{};         // of kDismissed; what it waited for, of kLives
  bool is_affected = false;  // something was done to it
  bool is_newcomer = false;
  bool was_voter = false;
};

// A rank has all parts of a step.
struct Completion {
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;
  membership::MemberId member = 0;
};

struct DrillRecord {
  std::map<std::uint32_t, membership::Decision> decisions{};  // by epoch
  std::vector<ProcessRecord> processes{};
  std::vector<Completion> completions{};
  std::vector<std::string> wrongs{};  // seen on the spot
  std::uint32_t moved = 0;            // ranks that were asked away, and stragglers
  std::uint32_t grown = 0;            // places that were asked for
  std::array<std::uint64_t, kTroubleKinds> troubles{};  // that came to pass
  std::array<std::uint64_t, kDrillPhases> in_phase{};   // of these, by phase
  std::uint64_t steps_repeated = 0;
  std::uint64_t stragglers = 0;
  std::uint64_t messages = 0;
  base::Duration longest_change{};  // from the first word of it to the first step behind it
  base::Instant ended{};
  std::uint64_t digest = 0;
};

struct DrillResult {
  DrillWorld world{};
  DrillRecord record{};
  std::vector<std::string> failures{};  // sentences; none: all is well
};

// Whether so few were affected that the job must be done in the end.
bool must_survive(const DrillWorld& world, const DrillRecord& record);
std::vector<std::string> check_drill(const DrillWorld& world, const DrillRecord& record);

DrillResult run_drill(const DrillWorld& world);

}  // namespace spillway::sim
