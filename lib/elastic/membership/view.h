// SPDX-License-Identifier: Apache-2.0
//
// The members of a job between two changes (a view), and the decision that one view follows
// another.
//
// A member is a process, not a rank. It draws a key when it starts, and its id is a hash of the
// public half (elastic/member_key.h); a restarted process is a new member. A view lists its
// ranks in order. A standby that replaces a lost rank is that rank from then on. Standbys vote on
// the next view but have no rank.
//
// Plain values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::membership {

using MemberId = std::uint64_t;  // 0: none

inline constexpr std::size_t kMaxMembers = 4096;      // ranks and standbys of a view
inline constexpr std::size_t kMaxHandleBytes = 1024;  // per member
inline constexpr std::size_t kMaxWhyBytes = 512;

// Reasons for dismissing members when nothing is left to do.
inline constexpr std::string_view kJobDone = "the job is done";
inline constexpr std::string_view kAskedToEnd = "the job was asked to end";  // + any reason

// True if the job is done or was asked to end without a reason. An end with a reason does not
// count.
inline bool is_wanted_end(std::string_view why) {
  return why == kJobDone || why == kAskedToEnd;
}

// Address of a member's data for the next epoch; opaque bytes from the runtime.
using Handle = std::vector<std::uint8_t>;
// Drawn with each decision. An epoch's keys depend on it and on secrets only members know.
using EpochNonce = std::array<std::uint8_t, 16>;

struct View {
  std::uint32_t epoch = 0;
  std::vector<MemberId> ranks{};     // rank i is ranks[i]
  std::vector<MemberId> standbys{};  // in the order in which they are called in

  std::optional<std::uint32_t> rank_of(MemberId member) const;
  bool has(MemberId member) const;  // as a rank or a standby
  friend bool operator==(const View&, const View&) = default;
};

enum class Outcome : std::uint8_t {
  kGoesOn,  // the job continues with `view`
  kEnds,    // the job cannot continue or was asked to end; `why` says which
};

// What follows a view. Chosen once; the same for every member that learns of it.
struct Decision {
  Outcome outcome = Outcome::kGoesOn;
  View view{};                           // its epoch is the previous epoch plus one
  std::string why{};                     // for people: "rank 2 is gone: its connection closed"
  std::uint64_t step = 0;                // every rank continues at the beginning of this step
  std::vector<std::uint32_t> sources{};  // ranks of `view` that have that step's state
  std::vector<Handle> handles{};         // of `view.ranks`, in order
  EpochNonce nonce{};

  friend bool operator==(const Decision&, const Decision&) = default;
};

}  // namespace spillway::membership
