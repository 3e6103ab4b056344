// SPDX-License-Identifier: Apache-2.0
//
// The voters of a view by index (its ranks, then its standbys), which of them watch which, and how
// many form a quorum.
//
// A quorum is more than half of the voters, or exactly half if the first voter is among them. Any
// two quorums share a voter, so at most one part of a split job continues. Every voter is watched
// by the next two in cyclic order and by the one opposite. Neighbours often share a host and fall
// silent together; the opposite voter then still notices.
//
// Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "elastic/membership/view.h"

namespace spillway::membership {

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

}  // namespace spillway::membership
