// SPDX-License-Identifier: Apache-2.0
#include "elastic/membership/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>

namespace spillway::membership {

namespace {

constexpr std::size_t kMaxNamed = 4;  // most reasons that one sentence lists

class Choice {
 public:
  explicit Choice(const Findings& findings) : findings_(findings) {
    for (const Present& present : findings.present) {
      present_.emplace(present.id, &present);
    }
    for (const ChangeRequest& request : findings.requests) {
      take(request);
    }
    find_step();
  }

  Decision decide() && {
    decision_.view.epoch = findings_.view.epoch + 1;
    decision_.nonce = findings_.nonce;
    const auto asked_end =
        std::ranges::find(findings_.requests, RequestKind::kEnd, &ChangeRequest::kind);
    if (asked_end != findings_.requests.end()) {
      return ends(std::string(kAskedToEnd) + (asked_end->why.empty() ? "" : ": " + asked_end->why));
    }
    if (!step_) {
      return ends("all that had the state are gone" + because());
    }
    find_spares();
    if (!fill_places()) {
      return std::move(decision_);
    }
    finish();
    return std::move(decision_);
  }

 private:
  const Present* find(MemberId member) const {
    const auto at = present_.find(member);
    return at == present_.end() ? nullptr : at->second;
  }

  void take(const ChangeRequest& request) {
    if (request.kind == RequestKind::kEnd || request.kind == RequestKind::kGrow) {
      growth_ += request.kind == RequestKind::kGrow ? request.places : 0;
      return;
    }
    auto& kind = request.kind == RequestKind::kMove ? moved_ : removed_;
    for (const std::uint32_t rank : request.ranks) {
      if (rank < findings_.view.ranks.size()) {
        kind.insert(findings_.view.ranks[rank]);
      }
    }
  }

  // Only ranks have the state of this view's steps.
  void find_step() {
    for (const MemberId rank : findings_.view.ranks) {
      const Present* present = find(rank);
      if (present != nullptr && present->position.has_state) {
        step_ = std::max(step_.value_or(0), present->position.step);
      }
    }
    const bool some_stay = std::ranges::any_of(findings_.view.ranks, [this](MemberId rank) {
      return has_step(rank) && !moved_.contains(rank) && !removed_.contains(rank);
    });
    if (!some_stay) {
      moved_.clear();
      removed_.clear();
    }
  }
  bool has_step(MemberId member) const {
    const Present* present = find(member);
    return present != nullptr && findings_.view.rank_of(member) && present->position.has_state &&
           present->position.step == step_;
  }

  void find_spares() {
    std::vector<const Present*> spares;
    for (const MemberId standby : findings_.view.standbys) {
      if (const Present* present = find(standby)) {
        spares.push_back(present);
      }
    }
    for (const Present& present : findings_.present) {
      if (!findings_.view.has(present.id)) {
        spares.push_back(&present);
      }
    }
    std::stable_partition(spares.begin(), spares.end(),
                          [](const Present* spare) { return spare->position.is_warm; });
    spares_.assign(spares.begin(), spares.end());
  }

  // Returns false if the job ends.
  bool fill_places() {
    std::vector<MemberId>& ranks = decision_.view.ranks;
    put_aside_requests();
    for (const MemberId member : findings_.view.ranks) {
      const bool is_here = find(member) != nullptr;
      const bool must_go = moved_.contains(member) || removed_.contains(member);
      if (is_here && !must_go) {
        ranks.push_back(member);
      } else if (!spares_.empty()) {
        ranks.push_back(spares_.front()->id);
        spares_.pop_front();
      } else if (!findings_.size.may_shrink) {
        ends("more ranks are gone than there are standbys, and the job may not shrink" + because());
        return false;
      }
    }
    if (ranks.size() < std::max<std::size_t>(findings_.size.min_ranks, 1)) {
      ends(fmt::format("{} ranks are left, and the job needs {}{}", ranks.size(),
                       findings_.size.min_ranks, because()));
      return false;
    }
    for (; growth_ > 0 && !spares_.empty(); --growth_, ++grown_) {
      ranks.push_back(spares_.front()->id);
      spares_.pop_front();
    }
    return true;
  }
  // Lost ranks are replaced first. Requests that the remaining standbys cannot meet are dropped.
  void put_aside_requests() {
    const auto dead = static_cast<std::size_t>(std::ranges::count_if(
        findings_.view.ranks, [this](MemberId member) { return find(member) == nullptr; }));
    std::size_t spare = spares_.size() - std::min(dead, spares_.size());
    std::size_t left = findings_.view.ranks.size() - dead + std::min(dead, spares_.size());
    for (const MemberId member : findings_.view.ranks) {
      if (find(member) == nullptr || (!moved_.contains(member) && !removed_.contains(member))) {
        continue;
      }
      if (spare > 0) {
        --spare;
      } else if (removed_.contains(member) && findings_.size.may_shrink &&
                 left > findings_.size.min_ranks) {
        --left;
      } else {
        moved_.erase(member);
        removed_.erase(member);
      }
    }
  }

  void finish() {
    for (const Present* spare : spares_) {
      add_standby(spare->id);
    }
    for (const MemberId member : findings_.view.ranks) {
      if (moved_.contains(member) && find(member) != nullptr) {
        add_standby(member);
      }
    }
    decision_.step = *step_;
    for (std::uint32_t rank = 0; rank < decision_.view.ranks.size(); ++rank) {
      const MemberId member = decision_.view.ranks[rank];
      decision_.handles.push_back(find(member)->handle);
      if (has_step(member)) {
        decision_.sources.push_back(rank);
      }
    }
    decision_.why = reasons();
  }
  void add_standby(MemberId member) {
    if (decision_.view.ranks.size() + decision_.view.standbys.size() < kMaxMembers) {
      decision_.view.standbys.push_back(member);
    }
  }

  // The view keeps all members, so that each one that learns of the end knows it is concerned.
  Decision ends(std::string why) {
    decision_.outcome = Outcome::kEnds;
    decision_.view.ranks = findings_.view.ranks;
    decision_.view.standbys = findings_.view.standbys;
    decision_.why = why.substr(0, kMaxWhyBytes);
    return decision_;
  }

  std::string name(MemberId member) const {
    const auto rank = findings_.view.rank_of(member);
    return rank ? fmt::format("rank {}", *rank) : "a standby";
  }
  std::string because() const {
    const std::string why = reasons();
    return why.empty() ? "" : ": " + why;
  }
  std::string reasons() const {
    std::vector<std::string> parts;
    for (const auto& [member, how] : findings_.gone) {
      parts.push_back(fmt::format("{} is gone: {}", name(member), how));
    }
    for (const ChangeRequest& request : findings_.requests) {
      for (const std::uint32_t rank : request.ranks) {
        const MemberId member =
            rank < findings_.view.ranks.size() ? findings_.view.ranks[rank] : MemberId{0};
        if (moved_.contains(member) || removed_.contains(member)) {
          parts.push_back(fmt::format("rank {} {}{}", rank,
                                      moved_.contains(member) ? "moves" : "is removed",
                                      request.why.empty() ? "" : ": " + request.why));
        }
      }
    }
    if (grown_ > 0) {
      parts.push_back(fmt::format("the job grows by {}", grown_));
    }
    if (parts.empty()) {
      return findings_.otherwise.substr(0, kMaxWhyBytes);
    }
    std::string text = parts.front();
    for (std::size_t i = 1; i < std::min(parts.size(), kMaxNamed); ++i) {
      text += "; " + parts[i];
    }
    if (parts.size() > kMaxNamed) {
      text += fmt::format("; and {} more", parts.size() - kMaxNamed);
    }
    return text.substr(0, kMaxWhyBytes);
  }

  const Findings& findings_;
  std::map<MemberId, const Present*> present_{};
  std::set<MemberId> moved_{};
  std::set<MemberId> removed_{};
  std::size_t growth_ = 0;  // requested
  std::size_t grown_ = 0;   // granted
  std::optional<std::uint64_t> step_{};
  std::deque<const Present*> spares_{};
  Decision decision_{};
};

}  // namespace

Decision choose(const Findings& findings) {
  return Choice(findings).decide();
}

std::string objection(const ChangeRequest& request, const View& view, std::size_t spares,
                      const SizeRules& size) {
  if (request.kind == RequestKind::kEnd) {
    return {};
  }
  const auto too_few = [spares](std::size_t needed) {
    return fmt::format("{} standbys are in reach and {} are needed: start more, then ask again",
                       spares, needed);
  };
  if (request.kind == RequestKind::kGrow) {
    if (!size.may_grow || request.places == 0 || request.places > kMaxRequestRanks) {
      return size.may_grow
                 ? fmt::format("a job grows by 1 to {} ranks at a time", kMaxRequestRanks)
                 : "the job was made not to grow: its groups are of the ranks that it has";
    }
    return request.places <= spares ? "" : too_few(request.places);
  }
  const std::set<std::uint32_t> ranks(request.ranks.begin(), request.ranks.end());
  if (ranks.empty() || *ranks.rbegin() >= view.ranks.size()) {
    return fmt::format("name ranks from 0 to {}", view.ranks.size() - 1);
  }
  if (ranks.size() == view.ranks.size()) {
    return "no rank with the state would be left: leave at least one where it is";
  }
  if (ranks.size() <= spares) {
    return {};
  }
  const bool shrinks = request.kind == RequestKind::kRemove && size.may_shrink &&
                       view.ranks.size() - (ranks.size() - spares) >= size.min_ranks;
  return shrinks ? "" : too_few(ranks.size());
}

namespace {

// For an even count, returns the lower of the two middle values.
base::Duration median_work(std::vector<base::Duration> work) {
  const auto middle = work.begin() + static_cast<std::ptrdiff_t>((work.size() - 1) / 2);
  std::ranges::nth_element(work, middle);
  return *middle;
}

}  // namespace

std::optional<base::Duration> WorkWindow::typical() const {
  if (count_ < kWorkSteps) {
    return std::nullopt;
  }
  return median_work({work_.begin(), work_.end()});
}

std::vector<Straggler> find_stragglers(const std::map<std::uint32_t, base::Duration>& work,
                                       std::size_t ranks, double factor) {
  std::vector<Straggler> found;
  if (work.size() < 3 || 2 * work.size() <= ranks) {
    return found;
  }
  std::vector<base::Duration> all;
  for (const auto& [rank, typical] : work) {
    all.push_back(typical);
  }
  const auto median = static_cast<double>(std::max<std::int64_t>(median_work(all).count(), 1));
  for (const auto& [rank, typical] : work) {
    const double times = static_cast<double>(typical.count()) / median;
    if (typical >= kLeastStragglerWork && times > factor) {
      found.push_back({rank, times});
    }
  }
  return found;
}

// ------------------------------------------------------------------ views

std::optional<std::uint32_t> View::rank_of(MemberId member) const {
  const auto at = std::ranges::find(ranks, member);
  return at == ranks.end() ? std::nullopt
                           : std::optional(static_cast<std::uint32_t>(at - ranks.begin()));
}

bool View::has(MemberId member) const {
  return rank_of(member).has_value() || std::ranges::find(standbys, member) != standbys.end();
}

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
