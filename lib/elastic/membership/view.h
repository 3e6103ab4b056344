// SPDX-License-Identifier: Apache-2.0
//
// The members of a job between two changes (a view), and the decision that one view follows
// another.
//
// A member is a process, not a rank. It draws a key when it starts, and its id is a hash of the
// public half (elastic/mesh_message.h); a restarted process is a new member. A view lists its
// ranks in order. A standby that replaces a lost rank is that rank from then on. Standbys vote on
// the next view but have no rank.
//
// Plain values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"

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
  kContinues,  // the job continues with `view`
  kEnds,       // the job cannot continue or was asked to end; `why` says which
};

// The decision after a view. Chosen once; the same for every member that learns of it.
struct Decision {
  Outcome outcome = Outcome::kContinues;
  View view{};                           // its epoch is the previous epoch plus one
  std::string why{};                     // for people: "rank 2 is gone: its connection closed"
  std::uint64_t step = 0;                // every rank continues at the beginning of this step
  std::vector<std::uint32_t> sources{};  // ranks of `view` that have that step's state
  std::vector<Handle> handles{};         // of `view.ranks`, in order
  EpochNonce nonce{};

  friend bool operator==(const Decision&, const Decision&) = default;
};

// How a member was lost, where its training stands, and what can be asked of the job.

inline constexpr std::size_t kMaxRequestRanks = 1024;  // ranks that one request may name or add

enum class LossCause : std::uint8_t {
  kClosed,  // the connection ended because the process or its host did
  kSilent,  // nothing arrived for too long
  kData,    // an operation failed and blamed this member
};

// How many ranks a job may have.
struct SizeRules {
  bool may_shrink = false;  // if no standby is left; otherwise the job ends
  std::uint32_t min_ranks = 1;
  bool may_grow = true;  // on request
};

// A process's state when its training is stopped.
struct Position {
  bool has_state = false;  // a standby has none
  std::uint64_t step = 0;  // the state is that of this step's beginning
  bool is_warm = true;     // a standby's first step costs nothing extra

  friend bool operator==(const Position&, const Position&) = default;
};

enum class RequestKind : std::uint8_t {
  kMove,    // standbys take these ranks' places; the ranks become standbys
  kRemove,  // the same, but these ranks leave the job
  kGrow,    // standbys become ranks after the last one; `ranks` is empty
  kEnd,     // the job ends for all; `ranks` is empty
};

struct ChangeRequest {
  RequestKind kind = RequestKind::kMove;
  std::vector<std::uint32_t> ranks{};  // ranks of the present view
  std::uint32_t places = 0;            // number of ranks to add
  std::string why{};

  friend bool operator==(const ChangeRequest&, const ChangeRequest&) = default;
};

// The voters of a view by index (its ranks, then its standbys), which of them watch which, and how
// many form a quorum.
//
// A quorum is more than half of the voters, or exactly half if the first voter is among them. Any
// two quorums share a voter, so at most one part of a split job continues. Every voter is watched
// by the next two in cyclic order and by the one opposite. Neighbours often share a host and fall
// silent together; the opposite voter then still notices.
//
// Immutable; any thread.

inline constexpr std::size_t kSmallJob = 64;  // voters

class Roster {
 public:
  Roster() = default;
  explicit Roster(const View& view);

  std::size_t size() const { return voters_.size(); }
  std::size_t rank_count() const { return rank_count_; }
  const std::vector<MemberId>& voters() const { return voters_; }
  bool has(MemberId member) const { return index_of(member).has_value(); }
  bool has_rank(MemberId member) const;
  std::optional<std::uint32_t> index_of(MemberId member) const;

  bool is_quorum(std::size_t count, bool has_first) const {
    return 2 * count > size() || (2 * count == size() && has_first && count > 0);
  }
  // The size of a quorum without the first voter.
  std::size_t quorum_size() const { return size() / 2 + 1; }

  // The voters that compare decisions with `index`: all of them in a small job, else those that
  // `index` watches or is watched by. So no single liar separates two parts of a job.
  std::vector<MemberId> compared_with(std::uint32_t index) const;

  // The voters to which `index` sends signs of life, and those from which it expects them.
  std::vector<MemberId> watchers_of(std::uint32_t index) const;
  std::vector<MemberId> watched_by(std::uint32_t index) const;

 private:
  std::vector<MemberId> around(std::uint32_t index, bool forward) const;

  std::vector<MemberId> voters_{};
  std::size_t rank_count_ = 0;
  std::vector<std::pair<MemberId, std::uint32_t>> by_id_{};  // sorted
};

// ------------------------------------------------------------------ what follows a view

// Chooses what follows a view: which members replace the lost ones, and at which step all continue.
// A pure function of what the driver of a change has gathered. The voters decide whether the choice
// takes effect (member.h).
//
//   places   A parked rank keeps its place. A free place goes to a standby: warm ones first, then
//            in order, newcomers last. If none is left, later ranks move up if shrinking is
//            allowed; otherwise the job ends. Added places come last and take the standbys left
//            over.
//   step     The greatest step that any rank has reached. To begin step s, a rank needs every
//            rank's part of step s - 1. So nothing of that step is missing, and ranks that are
//            behind can receive its state.
//   sources  The ranks that have that state. A request that would leave no source is dropped.

// A parked member, or a newcomer.
struct Present {
  MemberId id = 0;
  Position position{};
  Handle handle{};
};

struct Findings {
  View view{};                                           // the view to be replaced
  std::vector<Present> present{};                        // newcomers in order of arrival
  std::vector<std::pair<MemberId, std::string>> gone{};  // with the reason: "its connection closed"
  std::vector<ChangeRequest> requests{};
  std::string otherwise{};  // reason if no member is gone and nothing was requested
  SizeRules size{};
  EpochNonce nonce{};
};

Decision choose(const Findings& findings);

// Why `request` cannot be met with `spares` standbys in reach; empty when it can.
std::string objection(const ChangeRequest& request, const View& view, std::size_t spares,
                      const SizeRules& size);

// Detects slow ranks. Every rank waits for the slowest, so the duration of a step tells nothing.
// Instead each rank measures its own work: the time it spends between two operations of the group.
//
// A rank's typical work is the median of its last kWorkSteps steps, so one slow step does not
// matter. A straggler is a rank whose typical work is more than `factor` times the median of all
// ranks.

inline constexpr std::size_t kWorkSteps = 8;
// Below this, differences between ranks are noise of the machines.
inline constexpr base::Duration kLeastStragglerWork = base::milliseconds(1);

// One rank's own work. One thread.
class WorkWindow {
 public:
  void add(base::Duration work) { work_[count_++ % kWorkSteps] = work; }
  void clear() { count_ = 0; }
  // Unset before kWorkSteps steps.
  std::optional<base::Duration> typical() const;

 private:
  std::array<base::Duration, kWorkSteps> work_{};
  std::size_t count_ = 0;
};

struct Straggler {
  std::uint32_t rank = 0;
  double times_median = 0;

  friend bool operator==(const Straggler&, const Straggler&) = default;
};

// `work`: typical work of the ranks for which it is known. Returns nothing unless these are at
// least three and more than half of `ranks`: of two, neither is known to be the slow one.
std::vector<Straggler> find_stragglers(const std::map<std::uint32_t, base::Duration>& work,
                                       std::size_t ranks, double factor);

}  // namespace spillway::membership
