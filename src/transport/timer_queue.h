// SPDX-License-Identifier: Apache-2.0
//
// When to look at what again. An owner keeps the true due time of each timer in the object it
// belongs to; the queue only promises to name that object no later than it was asked to. Timers
// move often and mostly later, so nothing is ever cancelled: an entry that comes up too early is
// put back by its owner with the true time, and one whose object is gone is ignored.
//
// Holds at most one useful entry per timer if owners arm() only when the new time is earlier than
// what they armed last. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/units.h"

namespace spillway::transport {

enum class TimerKind : std::uint8_t { kPeer, kOutgoing, kIncoming, kCredit };

struct Timer {
  base::Instant due;
  TimerKind kind = TimerKind::kPeer;
  std::uint32_t slot = 0;
};

class TimerQueue {
 public:
  bool empty() const { return heap_.empty(); }
  base::Instant next_due() const { return heap_.front().due; }

  void arm(const Timer& timer) {
    heap_.push_back(timer);
    std::push_heap(heap_.begin(), heap_.end(), is_later);
  }

  Timer pop() {
    std::pop_heap(heap_.begin(), heap_.end(), is_later);
    const Timer timer = heap_.back();
    heap_.pop_back();
    return timer;
  }

  std::size_t memory_bytes() const { return heap_.capacity() * sizeof(Timer); }

 private:
  // A total order, so that equal times come up the same way on every machine.
  static bool is_later(const Timer& a, const Timer& b) {
    if (a.due != b.due) {
      return a.due > b.due;
    }
    return a.kind != b.kind ? a.kind > b.kind : a.slot > b.slot;
  }

  std::vector<Timer> heap_;
};

}  // namespace spillway::transport
