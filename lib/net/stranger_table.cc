// SPDX-License-Identifier: Apache-2.0
#include "net/stranger_table.h"

#include <sys/resource.h>

#include <algorithm>

namespace spillway::net {

// Picks from the most crowded source. There it picks the oldest silent stranger or, if all were
// answered, the newest.
class StrangerTable::Choice {
 public:
  using Rank = std::tuple<std::size_t, bool>;  // strangers of its source; it is silent

  Choice() = default;
  explicit Choice(const Rank& least) : best_(least) {}

  void consider(Id id, std::size_t crowd, bool is_answered) {
    const Rank rank{crowd, !is_answered};
    if (rank > best_ || (rank == best_ && (!evict_ || is_answered))) {
      best_ = rank;
      evict_ = id;
    }
  }
  std::optional<Id> evict() const { return evict_; }

 private:
  Rank best_{};
  std::optional<Id> evict_;
};

std::size_t StrangerTable::most_of(std::uint64_t files, std::size_t bytes_each) {
  const std::uint64_t fit = kMaxBytes / std::max<std::size_t>(bytes_each, 1);
  return static_cast<std::size_t>(std::max(kLeast, std::min(files / kDescriptorShare, fit)));
}

std::uint64_t StrangerTable::files_of_process() {
  rlimit files{};
  return ::getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : 0;
}

StrangerTable::Shared& StrangerTable::of_process() {
  static Shared shared{.strangers = 0, .most = most_of(files_of_process(), 1)};
  return shared;
}

StrangerTable::Room StrangerTable::room_for(const std::string& source, base::Instant now) const {
  const auto own = sources_.find(source);
  const Sources::value_type* own_source = own == sources_.end() ? nullptr : &*own;
  const std::size_t own_count = (own_source == nullptr ? 0 : own_source->second) + 1;
  const bool is_source_full = own_count > std::max<std::size_t>(most_ / kSourceShare, 1);
  const bool is_process_full = shared_->strangers >= shared_->most && strangers_.size() >= kLeast;
  if (strangers_.size() < most_ && !is_process_full && !is_source_full) {
    return {.is_free = true};
  }
  Choice choice({own_count, false});
  for (const auto& [id, stranger] : strangers_) {
    const bool may_evict = !is_source_full || stranger.source == own_source;
    if (may_evict && !is_safe(stranger, now)) {
      const bool is_own = stranger.source == own_source;
      choice.consider(id, is_own ? own_count : stranger.source->second, stranger.is_answered);
    }
  }
  return {.is_free = false, .evict = choice.evict()};
}

std::optional<StrangerTable::Id> StrangerTable::first_to_evict(base::Instant now) const {
  Choice choice;
  for (const auto& [id, stranger] : strangers_) {
    if (!is_safe(stranger, now)) {
      choice.consider(id, stranger.source->second, stranger.is_answered);
    }
  }
  return choice.evict();
}

void StrangerTable::add(Id id, const std::string& source, base::Instant now) {
  Sources::value_type& counted = *sources_.try_emplace(source, 0).first;
  ++counted.second;
  strangers_.emplace(id, Stranger{.source = &counted, .begun = now});
  ++shared_->strangers;
}

void StrangerTable::answered(Id id) {
  if (const auto found = strangers_.find(id); found != strangers_.end()) {
    found->second.is_answered = true;
  }
}

void StrangerTable::remove(Id id) {
  const auto found = strangers_.find(id);
  if (found == strangers_.end()) {
    return;
  }
  Sources::value_type& counted = *found->second.source;
  strangers_.erase(found);
  --shared_->strangers;
  if (--counted.second == 0) {
    sources_.erase(sources_.find(counted.first));
  }
}

}  // namespace spillway::net
