// SPDX-License-Identifier: Apache-2.0
//
// Remembers which control packets of a peer were seen: a sliding window over their sequence
// numbers. A number is accepted once. Numbers that fell out of the window are refused, seen or not,
// so that a recorded packet can never be played again. Numbers have 64 bits and do not run out.
#pragma once

#include <array>
#include <cstdint>

namespace spillway::transport {

class ReplayWindow {
 public:
  static constexpr std::uint64_t kWidth = 256;

  // Numbers up to `newest` count as seen.
  explicit ReplayWindow(std::uint64_t newest = 0) : newest_(newest) { seen_.fill(~0ULL); }

  // True the first time a number is seen, as long as it is not too old to tell.
  bool accept(std::uint64_t sequence) {
    if (sequence <= newest_ && newest_ - sequence >= kWidth) {
      return false;
    }
    if (sequence > newest_) {
      advance(sequence);
    } else if ((word(sequence) & bit(sequence)) != 0) {
      return false;
    }
    word(sequence) |= bit(sequence);
    return true;
  }

 private:
  std::uint64_t& word(std::uint64_t sequence) { return seen_[sequence % kWidth / 64]; }
  static std::uint64_t bit(std::uint64_t sequence) { return std::uint64_t{1} << (sequence % 64); }

  void advance(std::uint64_t sequence) {
    if (sequence - newest_ >= kWidth) {
      seen_.fill(0);
    } else {
      for (std::uint64_t cleared = newest_ + 1; cleared != sequence + 1; ++cleared) {
        word(cleared) &= ~bit(cleared);
      }
    }
    newest_ = sequence;
  }

  std::uint64_t newest_;
  std::array<std::uint64_t, kWidth / 64> seen_;
};

}  // namespace spillway::transport
