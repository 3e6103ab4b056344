// SPDX-License-Identifier: Apache-2.0
//
// Which numbered operations are over: all below a floor, and runs of numbers above it. Operations
// end in nearly the order of their numbers, so the runs are few: at most one more than there are
// operations that have begun and not ended, however many have ended beside them.
//
// Plain value; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace spillway::transport {

class RetiredOperations {
 public:
  // True once any were named; an owner that does not number its operations names none.
  bool is_used() const { return is_used_; }
  bool contains(std::uint64_t operation) const {
    if (operation < floor_) {
      return true;
    }
    const auto behind = first_behind(operation);
    return behind != runs_.begin() && operation < std::prev(behind)->end;
  }

  void add(std::uint64_t operation) { add_run(operation, operation + 1); }
  void add_before(std::uint64_t operation) { add_run(0, operation); }

  // All before this one are over.
  std::uint64_t floor() const { return floor_; }
  std::size_t run_count() const { return runs_.size(); }

 private:
  struct Run {
    std::uint64_t begin;
    std::uint64_t end;
  };

  std::vector<Run>::const_iterator first_behind(std::uint64_t operation) const {
    return std::upper_bound(
        runs_.begin(), runs_.end(), operation,
        [](std::uint64_t number, const Run& run) { return number < run.begin; });
  }

  // Joins with all runs that it overlaps or touches, and with the floor.
  void add_run(std::uint64_t begin, std::uint64_t end) {
    is_used_ = true;
    if (end <= floor_) {
      return;
    }
    auto last = runs_.begin() + (first_behind(end) - runs_.cbegin());
    auto first = last;
    while (first != runs_.begin() && std::prev(first)->end >= begin) {
      --first;
      begin = std::min(begin, first->begin);
      end = std::max(end, first->end);
    }
    first = runs_.erase(first, last);
    if (begin <= floor_) {
      floor_ = end;  // nothing lies before it: runs below the floor are no longer there
    } else {
      runs_.insert(first, {begin, end});
    }
  }

  bool is_used_ = false;
  std::uint64_t floor_ = 0;
  std::vector<Run> runs_;  // above the floor, apart from each other, ascending
};

}  // namespace spillway::transport
