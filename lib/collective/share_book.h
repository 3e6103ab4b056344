// SPDX-License-Identifier: Apache-2.0
//
// Decides which shares each operation of a group uses: the same at all ranks, although ranks are
// not at the same operation at the same time.
//
// After every so many bytes an operation is a survey: all ranks tell all others what their links
// carry, in notes beside the operation (capacity_notes.h). The new shares count from the kLag-th
// operation after it on. Which operations survey, and which use new shares, depends on their order
// and sizes alone, which all ranks know. A rank that has not heard from all others when such an
// operation is about to begin waits; notes come before data, so that is rare.
//
// No cycle of waiting can form: an operation waits for notes of an earlier one, and these only wait
// until their ranks have begun it.
//
// Counts only operations that shares matter to; it is asked once for each, in order. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/shards.h"
#include "collective/share_solver.h"

namespace spillway::collective {

class ShareBook {
 public:
  static constexpr unsigned kLag = 4;

  // `survey_bytes`: least bytes of operations from one survey to the next; the same at all ranks.
  ShareBook(std::uint16_t ranks, std::size_t survey_bytes)
      : survey_bytes_(survey_bytes), capacities_(ranks) {}

  // True if the next operation has to wait for notes.
  bool is_waiting() const { return lag_ == 1 && missing_ > 0; }

  // The next operation begins; call only if not is_waiting(). True: it is a survey.
  bool begin(std::size_t bytes) {
    bytes_ += bytes;
    if (lag_ > 0) {
      if (--lag_ == 0 && !was_given_up_) {
        shares_ = next_shares(shares_, capacities_);
      }
      return false;
    }
    if (bytes_ < survey_bytes_) {
      return false;
    }
    bytes_ = 0;
    lag_ = kLag;
    missing_ = capacities_.size();
    return true;
  }

  // Shares of the operation that began last, until the next one begins.
  const Shares& shares() const { return shares_; }

  // Records what a rank said in the survey.
  void record(std::uint16_t rank, std::uint64_t capacity) {
    capacities_[rank] = capacity;
    missing_ -= missing_ > 0 ? 1 : 0;
  }
  // A rank has left: operations that need its notes will not happen.
  void give_up() {
    was_given_up_ = true;
    missing_ = 0;
  }

 private:
  std::size_t survey_bytes_;
  Shares shares_;
  std::vector<std::uint64_t> capacities_;  // by rank
  std::size_t bytes_ = 0;                  // since the latest survey
  std::size_t missing_ = 0;                // its notes that have not come
  unsigned lag_ = 0;                       // operations until its shares count
  bool was_given_up_ = false;
};

}  // namespace spillway::collective
