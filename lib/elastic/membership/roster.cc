// SPDX-License-Identifier: Apache-2.0
#include "elastic/membership/roster.h"

#include <algorithm>
#include <array>

namespace spillway::membership {

Roster::Roster(const View& view) : voters_(view.ranks), rank_count_(view.ranks.size()) {
  voters_.insert(voters_.end(), view.standbys.begin(), view.standbys.end());
  by_id_.reserve(voters_.size());
  for (std::uint32_t i = 0; i < voters_.size(); ++i) {
    by_id_.emplace_back(voters_[i], i);
  }
  std::ranges::sort(by_id_);
}

std::optional<std::uint32_t> Roster::index_of(MemberId member) const {
  const auto at = std::ranges::lower_bound(by_id_, std::pair(member, std::uint32_t{0}));
  return at == by_id_.end() || at->first != member ? std::nullopt : std::optional(at->second);
}

bool Roster::has_rank(MemberId member) const {
  const std::optional<std::uint32_t> index = index_of(member);
  return index && *index < rank_count_;
}

std::vector<MemberId> Roster::compared_with(std::uint32_t index) const {
  if (size() <= kSmallJob) {
    return voters_;
  }
  std::vector<MemberId> found = watchers_of(index);
  const std::vector<MemberId> others = watched_by(index);
  found.insert(found.end(), others.begin(), others.end());
  return found;
}

std::vector<MemberId> Roster::watchers_of(std::uint32_t index) const {
  return around(index, true);
}

std::vector<MemberId> Roster::watched_by(std::uint32_t index) const {
  return around(index, false);
}

std::vector<MemberId> Roster::around(std::uint32_t index, bool forward) const {
  std::vector<MemberId> found;
  const std::size_t n = size();
  for (const std::size_t distance :
       std::array<std::size_t, 3>{1, 2, std::max<std::size_t>(n / 2, 3)}) {
    const std::size_t away = forward ? distance % n : n - distance % n;
    const MemberId other = voters_[(index + away) % n];
    if (other != voters_[index] && std::ranges::find(found, other) == found.end()) {
      found.push_back(other);
    }
  }
  return found;
}

}  // namespace spillway::membership
