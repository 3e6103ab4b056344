// SPDX-License-Identifier: Apache-2.0
//
// Who a job consists of, from one change to the next: a view, and the decision that one view
// follows another.
//
// A member is a process, not a rank: it draws its id when it starts, and one that comes back is
// another. A view's ranks are in order: rank 2 is whoever stands at 2, and a standby that takes the
// place of a dead one is that rank from then on. Standbys of a view have a voice in what follows,
// but no rank.
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

using MemberId = std::uint64_t;  // 0: nobody

inline constexpr std::size_t kMaxMembers = 4096;      // ranks and standbys of a view
inline constexpr std::size_t kMaxHandleBytes = 1024;  // of one member
inline constexpr std::size_t kMaxWhyBytes = 512;

// Why members are dismissed when nothing is left to do.
inline constexpr std::string_view kJobDone = "the job is done";
inline constexpr std::string_view kAskedToEnd = "the job was asked to end";  // without a reason

// Whether a job that ends with this sentence ends as somebody wanted, and not because it must.
inline bool is_wanted_end(std::string_view why) {
  return why == kJobDone || why == kAskedToEnd;
}

// By which a member's data is reached in the next epoch: bytes of the runtime's.
using Handle = std::vector<std::uint8_t>;
// Drawn with each decision: what the epoch's keys are made of, beside what only members know.
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
  kGoesOn,  // in the view
  kEnds,    // the job cannot go on, or was asked to end: `why` says it
};

// What follows a view: chosen once, the same for all who hear of it.
struct Decision {
  Outcome outcome = Outcome::kGoesOn;
  View view{};                           // its epoch is one more than that of the view before
  std::string why{};                     // for people: "rank 2 is gone: its connection closed"
  std::uint64_t step = 0;                // at whose beginning all go on
  std::vector<std::uint32_t> sources{};  // ranks of `view` that have that step's state
  std::vector<Handle> handles{};         // of `view.ranks`, in order
  EpochNonce nonce{};

  friend bool operator==(const Decision&, const Decision&) = default;
};

}  // namespace spillway::membership
