// SPDX-License-Identifier: Apache-2.0
//
// The simulator's clock and its queue of events.
//
// Events run in order of their time; events of the same time run in the order they were scheduled.
// So a run is a function of its inputs. Near events (the next 65,536 ns) are in a wheel with one
// slot per nanosecond, found by a two-level bitmap: scheduling and running take constant time. Far
// events wait in a heap and move into the wheel before a later event can be scheduled into their
// slot.
//
// Events cannot be cancelled: the actor ignores an event that it no longer needs. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/units.h"

namespace spillway::sim {

class Actor {
 public:
  virtual ~Actor() = default;
  virtual void on_event(std::uint64_t argument, base::Instant now) = 0;
  // Hints that on_event() will follow with this argument, in steps 0 to kPrefetchSteps - 1. They
  // may fetch memory and must change nothing. A step may read what the previous one fetched.
  virtual void prefetch(std::uint64_t /*argument*/, unsigned /*step*/) const {}
  static constexpr unsigned kPrefetchSteps = 4;
};

class EventQueue {
 public:
  EventQueue();

  // The time of the latest event run.
  base::Instant now() const { return base::Instant(base::nanoseconds(now_)); }
  std::size_t pending() const { return near_count_ + far_.size() + due_.size() - due_next_; }
  std::uint64_t events_run() const { return events_run_; }

  // `target` must live until the event runs. `when` must not be before now().
  void schedule(base::Instant when, Actor& target, std::uint64_t argument) {
    const std::int64_t time = when.since_zero().count();
    SPILLWAY_CHECK(time >= now_);
    if (time - now_ < kSlots) [[likely]] {
      append(time, &target, argument);
    } else {
      push_far(time, &target, argument);
    }
  }

  // The time of the next event; unset if there is none.
  std::optional<base::Instant> next_time() const;

  // Runs the next event unless it is later than `limit`; false if there was none to run.
  bool run_next(base::Instant limit);

 private:
  static constexpr std::int64_t kSlots = 1 << 16;
  static constexpr std::uint32_t kEmpty = UINT32_MAX;
  static constexpr std::size_t kWords = kSlots / 64;
  static constexpr std::size_t kFetchedTogether = 16;
  static constexpr std::size_t kFewestFetched = 6;

  struct Event {
    Actor* target;
    std::uint64_t argument;
  };
  // Events of one slot, in order; each block takes two cache lines.
  struct alignas(128) Block {
    std::uint32_t next;
    std::uint32_t count;
    std::array<Event, 7> events;
  };
  struct Slot {
    std::uint32_t first = kEmpty;
    std::uint32_t last = kEmpty;
  };
  struct FarEvent {
    std::int64_t time;
    std::uint64_t order;
    Actor* target;
    std::uint64_t argument;
  };

  static std::size_t slot_of(std::int64_t time) { return static_cast<std::size_t>(time) % kSlots; }
  static bool later(const FarEvent& a, const FarEvent& b) {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }

  void append(std::int64_t time, Actor* target, std::uint64_t argument);
  void push_far(std::int64_t time, Actor* target, std::uint64_t argument);
  std::uint32_t take_block();
  std::int64_t time_behind_due() const;
  bool advance(std::int64_t limit);
  void take_due_events();
  void fetch_for(std::size_t first) const;
  std::size_t next_occupied(std::size_t slot) const;
  void move_far_events_into_wheel();

  std::int64_t now_ = 0;
  std::uint64_t events_run_ = 0;
  std::size_t near_count_ = 0;
  std::vector<Slot> slots_;
  std::array<std::uint64_t, kWords> occupied_{};             // bit per slot
  std::array<std::uint64_t, kWords / 64> occupied_words_{};  // bit per word of occupied_
  std::vector<Block> blocks_;
  std::uint32_t free_ = kEmpty;
  std::vector<Event> due_;  // events of now_; due_next_ is the first not run
  std::size_t due_next_ = 0;
  std::vector<FarEvent> far_;  // a heap, earliest first
  std::uint64_t far_order_ = 0;
};

}  // namespace spillway::sim
