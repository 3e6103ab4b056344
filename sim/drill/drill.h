// SPDX-License-Identifier: Apache-2.0
//
// Drills: the real membership::Member of every process of a job, in virtual time, with trouble
// (DrillWorld) and a training that checks itself. Invariants:
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
//   drill_trouble   what goes wrong
//   drill_training  what applications do
//   drill_run       connections, and the drill itself
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "elastic/membership/member.h"
#include "elastic/membership/view.h"

namespace spillway::sim {

// Worlds for drills: a training job, its standbys, and its troubles. Drawn from a seed, or taken
// from a systematic list, in which one trouble starts a change and another happens in each of its
// phases.

enum class TroubleKind : std::uint8_t {
  kKill,     // a process ends; its connections close
  kSilence,  // no message to or from it arrives any more, and nobody is told
  kPause,    // a process stops for a while
  kCut,      // no message passes between a part and the rest, for a while or for good
  kReset,    // a part's connections to the rest break, and come back later
  kPair,     // no message passes between two processes
  kMove,     // a member asks for ranks to be moved
  kRemove,   // or removed
  kGrow,     // or for standbys to become ranks
  kJoin,     // a new process joins
  kSlow,     // its steps take several times as long from now on
};
inline constexpr std::size_t kTroubleKinds = 11;

enum class Victim : std::uint8_t { kDriver, kJoiner, kRank, kStandby, kAny };

// Progress of a change, by the first message or action of each phase.
enum class DrillPhase : std::uint8_t {
  kHalt,       // a driver sends Halt
  kParked,     // a member has stopped
  kAccept,     // all have, and the driver proposes
  kAccepted,   // a member has accepted
  kChosen,     // the driver knows the decision
  kDecided,    // a member learns the decision
  kFetching,   // a joiner gets the state
  kFirstStep,  // a rank trains in the new epoch
};
inline constexpr std::size_t kDrillPhases = 8;

std::string_view trouble_name(TroubleKind kind);
std::string_view victim_name(Victim victim);
std::string_view phase_name(DrillPhase phase);

struct Trouble {
  TroubleKind kind = TroubleKind::kKill;
  Victim victim = Victim::kRank;
  std::uint32_t count = 1;            // victims: the picked one, then ranks in order
  std::uint32_t pick = 0;             // index among the candidates
  std::optional<DrillPhase> phase{};  // starts with its `nth` occurrence after `at`; unset: at `at`
  std::uint32_t nth = 1;
  base::Duration at{};
  base::Duration lasts{};  // 0: for good
};

struct DrillWorld {
  std::uint64_t seed = 0;
  std::uint32_t ranks = 4;
  std::uint32_t standbys = 1;
  std::uint64_t steps = 40;
  membership::MemberConfig config{};
  base::Duration least_delay = base::microseconds(20);  // of a message
  base::Duration most_delay = base::milliseconds(2);
  base::Duration work = base::milliseconds(20);         // of a step
  base::Duration connect = base::milliseconds(20);      // to the members of a new epoch
  base::Duration fetch = base::milliseconds(30);        // the state
  base::Duration park = base::milliseconds(5);          // upper bound of the time to abandon a step
  base::Duration data_limit = base::milliseconds(500);  // until an operation reports the lost rank
  base::Duration tcp_limit = base::seconds(3);          // until cut connections break; 0: never
  bool overwrites = false;                              // fetching a state destroys the old one
  std::vector<Trouble> troubles{};
  base::Instant limit{base::seconds(900)};  // of the whole drill
};

// `ranks` of 0: drawn.
DrillWorld draw_drill_world(std::uint64_t seed, std::uint32_t ranks = 0);

// Every start of a change, with every trouble in each of its phases.
std::vector<DrillWorld> phase_worlds(std::uint32_t ranks);

// Human-readable.
std::string describe(const DrillWorld& world);

using ProcessIndex = std::uint32_t;

enum class ProcessEnd : std::uint8_t {
  kAlive,      // still alive when the world ended: it hangs
  kKilled,     // by the drill
  kDismissed,  // by its member, with a reason
  kAbsent,     // never started
};

struct ProcessRecord {
  ProcessEnd end = ProcessEnd::kAlive;
  std::string why{};         // reason of kDismissed; what a kAlive process waits for
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
  std::vector<std::string> violations{};                // violations found during the run
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
