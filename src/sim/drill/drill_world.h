// SPDX-License-Identifier: Apache-2.0
//
// Worlds for drills: a training job, its standbys, and what goes wrong in it. Drawn from a seed, or
// one of a systematic list: something begins a change, and something else happens in each of its
// phases.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "membership/member.h"

namespace spillway::sim {

enum class TroubleKind : std::uint8_t {
  kKill,     // a process ends; its connections close
  kSilence,  // nothing passes to or from it any more, and nobody is told
  kPause,    // a process stands still for a while
  kCut,      // nothing passes between a part and the rest, for a while or for good
  kReset,    // a part's connections to the rest break, and come back later
  kPair,     // nothing passes between two
  kMove,     // somebody asks for ranks to be moved
  kRemove,   // or removed
  kGrow,     // or for standbys to become ranks
  kJoin,     // a process comes that was not there before
  kSlow,     // its steps take several times as long from now on
};
inline constexpr std::size_t kTroubleKinds = 11;

enum class Victim : std::uint8_t { kDriver, kJoiner, kRank, kStandby, kAny };

// How far a change has come, by what was sent or done first.
enum class DrillPhase : std::uint8_t {
  kHalt,       // a driver said so
  kParked,     // somebody stands still
  kAccept,     // all do, and the driver proposes
  kAccepted,   // somebody has accepted
  kChosen,     // the driver knows that it is decided
  kDecided,    // others know
  kFetching,   // a joiner gets the state
  kFirstStep,  // somebody trains in the new epoch
};
inline constexpr std::size_t kDrillPhases = 8;

std::string_view trouble_name(TroubleKind kind);
std::string_view victim_name(Victim victim);
std::string_view phase_name(DrillPhase phase);

struct Trouble {
  TroubleKind kind = TroubleKind::kKill;
  Victim victim = Victim::kRank;
  std::uint32_t count = 1;            // victims: that one and ranks behind it
  std::uint32_t pick = 0;             // which, of several
  std::optional<DrillPhase> phase{};  // after `at`, when this was seen `nth` times; else at `at`
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
  base::Duration park = base::milliseconds(5);          // to give a step up, at most
  base::Duration data_limit = base::milliseconds(500);  // until an operation names who is missing
  base::Duration tcp_limit = base::seconds(3);  // until connections that are cut break; 0: never
  bool overwrites = false;  // a state that is being fetched destroys the one that was there
  std::vector<Trouble> troubles{};
  base::Instant limit{base::seconds(900)};  // by which all is over
};

// `ranks`: so many; as drawn if 0.
DrillWorld draw_drill_world(std::uint64_t seed, std::uint32_t ranks = 0);

// Every way a change begins, with every trouble in every phase of it.
std::vector<DrillWorld> phase_worlds(std::uint32_t ranks);

// For people.
std::string describe(const DrillWorld& world);

}  // namespace spillway::sim
