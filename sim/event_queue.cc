// SPDX-License-Identifier: Apache-2.0
#include "sim/event_queue.h"

#include <algorithm>
#include <bit>

namespace spillway::sim {

EventQueue::EventQueue() : slots_(kSlots) {}

std::uint32_t EventQueue::take_block() {
  std::uint32_t index = free_;
  if (index == kEmpty) {
    index = static_cast<std::uint32_t>(blocks_.size());
    blocks_.emplace_back();
  } else {
    free_ = blocks_[index].next;
  }
  blocks_[index].next = kEmpty;
  blocks_[index].count = 0;
  return index;
}

void EventQueue::append(std::int64_t time, Actor* target, std::uint64_t argument) {
  const std::size_t at = slot_of(time);
  Slot& slot = slots_[at];
  if (slot.first == kEmpty) {
    slot.first = slot.last = take_block();
    occupied_[at / 64] |= std::uint64_t{1} << (at % 64);
    occupied_words_[at / 4096] |= std::uint64_t{1} << (at / 64 % 64);
  } else if (blocks_[slot.last].count == blocks_[slot.last].events.size()) {
    const std::uint32_t index = take_block();
    blocks_[slot.last].next = index;
    slot.last = index;
  }
  Block& block = blocks_[slot.last];
  block.events[block.count++] = {target, argument};
  ++near_count_;
}

void EventQueue::push_far(std::int64_t time, Actor* target, std::uint64_t argument) {
  far_.push_back({time, far_order_++, target, argument});
  std::ranges::push_heap(far_, later);
}

void EventQueue::move_far_events_into_wheel() {
  while (!far_.empty() && far_.front().time - now_ < kSlots) {
    std::ranges::pop_heap(far_, later);
    const FarEvent& event = far_.back();
    append(event.time, event.target, event.argument);
    far_.pop_back();
  }
}

// The first occupied slot from `slot` on, around the wheel. There must be one.
std::size_t EventQueue::next_occupied(std::size_t slot) const {
  const std::uint64_t rest = occupied_[slot / 64] >> (slot % 64);
  if (rest != 0) {
    return slot + static_cast<std::size_t>(std::countr_zero(rest));
  }
  std::size_t word = (slot / 64 + 1) % kWords;
  std::uint64_t words = occupied_words_[word / 64] >> (word % 64) << (word % 64);
  word /= 64;
  while (words == 0) {
    word = (word + 1) % occupied_words_.size();
    words = occupied_words_[word];
  }
  const std::size_t found = word * 64 + static_cast<std::size_t>(std::countr_zero(words));
  return found * 64 + static_cast<std::size_t>(std::countr_zero(occupied_[found]));
}

// The time of the first event behind due_; there must be one.
std::int64_t EventQueue::time_behind_due() const {
  if (near_count_ == 0) {
    return far_.front().time;
  }
  const std::size_t here = slot_of(now_);
  return now_ + static_cast<std::int64_t>((next_occupied(here) - here) % kSlots);
}

std::optional<base::Instant> EventQueue::next_time() const {
  if (pending() == 0) {
    return std::nullopt;
  }
  return due_next_ < due_.size() ? now() : base::Instant(base::nanoseconds(time_behind_due()));
}

// Moves the clock to the next event. Returns false and leaves the clock if that is beyond `limit`.
bool EventQueue::advance(std::int64_t limit) {
  if (near_count_ == 0 && far_.empty()) {
    return false;
  }
  const std::int64_t next = time_behind_due();
  if (next > limit) {
    return false;
  }
  now_ = next;
  move_far_events_into_wheel();
  return true;
}

// Moves the events of now_'s slot into due_, whose events must all have run.
void EventQueue::take_due_events() {
  const std::size_t at = slot_of(now_);
  due_.clear();
  due_next_ = 0;
  for (std::uint32_t index = slots_[at].first; index != kEmpty;) {
    Block& block = blocks_[index];
    due_.insert(due_.end(), block.events.begin(), block.events.begin() + block.count);
    const std::uint32_t next = block.next;
    block.next = free_;
    free_ = index;
    index = next;
  }
  near_count_ -= due_.size();
  slots_[at] = Slot();
  occupied_[at / 64] &= ~(std::uint64_t{1} << (at % 64));
  if (occupied_[at / 64] == 0) {
    occupied_words_[at / 4096] &= ~(std::uint64_t{1} << (at / 64 % 64));
  }
}

// Prefetches for the next events: first all their actors, then step by step the memory these lead
// to. Each step depends on the one before, but the fetches of one step overlap, so a step takes as
// long as a single fetch. A few events gain nothing: a network that small fits into the cache.
void EventQueue::fetch_for(std::size_t first) const {
  const std::size_t end = std::min(due_.size(), first + kFetchedTogether);
  if (end - first < kFewestFetched) {
    return;
  }
  for (std::size_t i = first; i < end; ++i) {
    __builtin_prefetch(due_[i].target);
  }
  for (unsigned step = 0; step < Actor::kPrefetchSteps; ++step) {
    for (std::size_t i = first; i < end; ++i) {
      due_[i].target->prefetch(due_[i].argument, step);
    }
  }
}

bool EventQueue::run_next(base::Instant limit) {
  if (due_next_ == due_.size()) {
    if (!advance(limit.since_zero().count())) {
      return false;
    }
    take_due_events();
  } else if (now() > limit) {
    return false;
  }
  if (due_next_ % kFetchedTogether == 0) {
    fetch_for(due_next_);
  }
  const Event event = due_[due_next_++];
  ++events_run_;
  event.target->on_event(event.argument, now());
  return true;
}

}  // namespace spillway::sim
