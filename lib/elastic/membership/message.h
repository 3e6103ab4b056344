// SPDX-License-Identifier: Apache-2.0
//
// The messages between members, and their bytes.
//
//   meeting    Hello (first on every connection; shows which peer is behind), Welcome,
//   DismissNotice watching   Alive, Suspect, StragglerNotice, LeaveNotice, Done deciding   Halt and
//   Parked (Paxos: prepare and promise), StepBegun, Accept, Accepted, BallotRefused learning Chosen
//   (what you accepted under this ballot), DecisionNotice (the decision itself),
//              Fingerprint (a fingerprint of the decision the sender follows: fork_watch.h)
//   asking     ForwardedRequest, RequestRefused
//
// `epoch` is that of the sender's view. A ballot is a round and its driver's index among the
// voters. Encoding: one byte for the kind, then the fields in order, little-endian. A length
// precedes each list and text.
//
// Pure functions: any bytes parse to a message or to nothing, and encoding a parsed message gives
// the same bytes. Limits: kMaxMembers, kMaxHandleBytes, kMaxWhyBytes, kMaxRequestRanks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "elastic/membership/view.h"

namespace spillway::membership {

using Ballot = std::uint64_t;  // 0: none
inline constexpr unsigned kBallotIndexBits = 16;
static_assert(kMaxMembers <= (1U << kBallotIndexBits));
inline constexpr std::uint64_t kMaxRound = std::uint64_t{1} << 32;

constexpr Ballot make_ballot(std::uint64_t round, std::uint32_t index) {
  return round << kBallotIndexBits | index;
}
constexpr std::uint64_t round_of(Ballot ballot) {
  return ballot >> kBallotIndexBits;
}
constexpr std::uint32_t driver_index_of(Ballot ballot) {
  return static_cast<std::uint32_t>(ballot & ((1U << kBallotIndexBits) - 1));
}

struct Hello {
  std::uint32_t epoch = 0;  // 0: the sender has no view yet
  bool is_newcomer = false;
  bool is_warm = false;
  Handle handle{};
  friend bool operator==(const Hello&, const Hello&) = default;
};
// Tells a newcomer the present view.
struct Welcome {
  View view{};
  friend bool operator==(const Welcome&, const Welcome&) = default;
};
struct DismissNotice {
  std::uint32_t epoch = 0;
  std::string why{};
  friend bool operator==(const DismissNotice&, const DismissNotice&) = default;
};

struct Alive {
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;  // the latest step that was begun
  base::Duration work{};   // a typical step's own work; 0: unknown
  Ballot ballot = 0;       // that the sender drives; 0: none
  bool wants_answer = false;
  friend bool operator==(const Alive&, const Alive&) = default;
};
// Names the sender itself if its training stopped without an Interrupt.
struct Suspect {
  std::uint32_t epoch = 0;
  MemberId member = 0;
  LossCause cause = LossCause::kClosed;
  friend bool operator==(const Suspect&, const Suspect&) = default;
};
struct StragglerNotice {
  std::uint32_t epoch = 0;
  std::uint32_t rank = 0;
  std::uint32_t permille_of_median = 0;
  friend bool operator==(const StragglerNotice&, const StragglerNotice&) = default;
};
struct LeaveNotice {
  std::uint32_t epoch = 0;
  bool is_whole = false;  // the sender's part of the job is done
  friend bool operator==(const LeaveNotice&, const LeaveNotice&) = default;
};

// The job is done. Sent for members that some rank's LeaveNotice did not reach.
struct Done {
  std::uint32_t epoch = 0;
  friend bool operator==(const Done&, const Done&) = default;
};

struct Halt {
  std::uint32_t epoch = 0;
  Ballot ballot = 0;
  std::optional<std::uint64_t> at_step{};  // unset: at once, replacing a halt at a step
  std::string why{};
  friend bool operator==(const Halt&, const Halt&) = default;
};
// The sender has already begun the step at which to halt.
struct StepBegun {
  std::uint32_t epoch = 0;
  Ballot ballot = 0;
  friend bool operator==(const StepBegun&, const StepBegun&) = default;
};
struct Parked {
  std::uint32_t epoch = 0;
  Ballot ballot = 0;
  Position position{};
  std::uint16_t in_reach = 0;  // voters that the sender has in reach
  Handle handle{};
  Ballot accepted_ballot = 0;
  std::optional<Decision> accepted{};  // set if accepted_ballot is not 0
  friend bool operator==(const Parked&, const Parked&) = default;
};
struct Accept {
  std::uint32_t epoch = 0;
  Ballot ballot = 0;
  Decision decision{};
  friend bool operator==(const Accept&, const Accept&) = default;
};
struct Accepted {
  std::uint32_t epoch = 0;
  Ballot ballot = 0;
  friend bool operator==(const Accepted&, const Accepted&) = default;
};
struct BallotRefused {
  std::uint32_t epoch = 0;
  Ballot promised = 0;
  friend bool operator==(const BallotRefused&, const BallotRefused&) = default;
};

struct Chosen {
  std::uint32_t epoch = 0;
  Ballot ballot = 0;
  friend bool operator==(const Chosen&, const Chosen&) = default;
};
struct DecisionNotice {
  Decision decision{};
  friend bool operator==(const DecisionNotice&, const DecisionNotice&) = default;
};

struct Fingerprint {
  std::uint32_t epoch = 0;  // the epoch that began with the decision
  std::uint64_t point = 0;
  std::uint64_t value = 0;
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

struct ForwardedRequest {
  std::uint32_t epoch = 0;
  std::uint32_t number = 0;  // counted by the asker
  ChangeRequest request{};
  friend bool operator==(const ForwardedRequest&, const ForwardedRequest&) = default;
};
struct RequestRefused {
  std::uint32_t epoch = 0;
  std::uint32_t number = 0;
  std::string why{};
  friend bool operator==(const RequestRefused&, const RequestRefused&) = default;
};

using Message =
    std::variant<Hello, Welcome, DismissNotice, Alive, Suspect, StragglerNotice, LeaveNotice, Done,
                 Halt, StepBegun, Parked, Accept, Accepted, BallotRefused, Chosen, DecisionNotice,
                 ForwardedRequest, RequestRefused, Fingerprint>;

// Longer texts and handles are truncated to their limits.
std::vector<std::uint8_t> encode(const Message& message);
std::optional<Message> parse_message(base::ByteView bytes);

}  // namespace spillway::membership
