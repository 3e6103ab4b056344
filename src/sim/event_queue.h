// SPDX-License-Identifier: Apache-2.0
//
// What happens when: the simulator's clock and its list of things to come.
//
// Events run in the order of their time and, at the same time, in the order they were scheduled, so
// a run is a function of its inputs. Near ones (the next 65,536 ns) stand in a wheel with a slot
// per nanosecond, found by a two-level bitmap: scheduling and running cost the same however many
// there are. Far ones wait in a heap and move into the wheel before anything can be scheduled
// beside them.
//
// Nothing can be taken back: who changes their mind ignores the event when it comes. One thread.
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
  // Hints that on_event() will come with this argument, in steps 0 to kPrefetchSteps - 1: they may
  // fetch memory and change nothing. What one step fetched, the next may look at.
  virtual void prefetch(std::uint64_t /*argument*/, unsigned /*step*/) const {}
  static constexpr unsigned kPrefetchSteps = 4;
};

class EventQueue {
 public:
  EventQueue();

  // The time of the latest event that was run.
  base::Instant now() const { return base::Instant(base::nanoseconds(now_)); }
  std::size_t pending() const { return near_count_ + far_.size() + due_.size() - due_next_; }
  std::uint64_t events_run() const { return events_run_; }

  // `target` must live until then. `when` is not before now().
  void schedule(base::Instant when, Actor& target, std::uint64_t argument) {
    const std::int64_t time = when.since_zero().count();
    SPILLWAY_CHECK(time >= now_);
    if (time - now_ < kSlots) [[likely]] {
      append(time, &target, argument);
    } else {
      push_far(time, &target, argument);
    }
  }

  // When the next event is due; nothing if there is none.
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
  // Events of one slot, in order: two cache lines of them at a time.
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
  std::array<std::uint64_t, kWords / 64> occupied_words_{};  // bit per word of it
  std::vector<Block> blocks_;
  std::uint32_t free_ = kEmpty;
  std::vector<Event> due_;  // of now_, from due_next_ on
  std::size_t due_next_ = 0;
  std::vector<FarEvent> far_;  // a heap, earliest first
  std::uint64_t far_order_ = 0;
};

}  // namespace spillway::sim
