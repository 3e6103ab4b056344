// SPDX-License-Identifier: Apache-2.0
//
// Worlds for drills: a training job, its standbys, and its troubles. Drawn from a seed, or taken
// from a systematic list, in which one trouble starts a change and another happens in each of its
// phases.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "elastic/membership/member.h"

namespace spillway::sim {

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

}  // namespace spillway::sim
