// SPDX-License-Identifier: Apache-2.0
#include "net/stranger_book.h"

#include <sys/resource.h>

#include <algorithm>
#include <tuple>

namespace spillway::net {

std::size_t StrangerBook::most_of(std::uint64_t files, std::size_t bytes_each) {
  const std::uint64_t fit = kMaxBytes / std::max<std::size_t>(bytes_each, 1);
  return static_cast<std::size_t>(std::max(kLeast, std::min(files / kDescriptorShare, fit)));
}

std::uint64_t StrangerBook::files_of_process() {
  rlimit files{};
  return ::getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : 0;
}

StrangerBook::Shared& StrangerBook::of_process() {
  static Shared shared{.strangers = 0, .most = most_of(files_of_process(), 1)};
  return shared;
}

StrangerBook::Room StrangerBook::room_for(const std::string& source, base::Instant now) const {
  const auto own = sources_.find(source);
  const Sources::value_type* own_source = own == sources_.end() ? nullptr : &*own;
  const std::size_t own_count = (own_source == nullptr ? 0 : own_source->second) + 1;
  const bool is_source_full = own_count > std::max<std::size_t>(most_ / kSourceShare, 1);
  const bool is_process_full = shared_->strangers >= shared_->most && strangers_.size() >= kLeast;
  if (strangers_.size() < most_ && !is_process_full && !is_source_full) {
    return {.is_free = true};
  }
  // Picks the most crowded source, then one that has said nothing; ties go to the first found,
  // which is the oldest.
  std::tuple<std::size_t, bool> best{own_count, false};
  std::optional<Id> leaves;
  for (const auto& [id, stranger] : strangers_) {
    if (is_safe(stranger, now) || (is_source_full && stranger.source != own_source)) {
      continue;
    }
    const std::size_t count = stranger.source == own_source ? own_count : stranger.source->second;
    const std::tuple<std::size_t, bool> rank{count, !stranger.is_answered};
    if (leaves ? rank > best : rank >= best) {
      best = rank;
      leaves = id;
    }
  }
  return {.is_free = false, .leaves = leaves};
}

std::optional<StrangerBook::Id> StrangerBook::first_to_leave(base::Instant now) const {
  std::tuple<std::size_t, bool> best;
  std::optional<Id> leaves;
  for (const auto& [id, stranger] : strangers_) {
    const std::tuple<std::size_t, bool> rank{stranger.source->second, !stranger.is_answered};
    if (!is_safe(stranger, now) && (!leaves || rank > best)) {
      best = rank;
      leaves = id;
    }
  }
  return leaves;
}

void StrangerBook::add(Id id, const std::string& source, base::Instant now) {
  Sources::value_type& counted = *sources_.try_emplace(source, 0).first;
  ++counted.second;
  strangers_.emplace(id, Stranger{.source = &counted, .begun = now});
  ++shared_->strangers;
}

void StrangerBook::answered(Id id) {
  if (const auto found = strangers_.find(id); found != strangers_.end()) {
    found->second.is_answered = true;
  }
}

void StrangerBook::remove(Id id) {
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
