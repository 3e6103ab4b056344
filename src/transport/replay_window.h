// SPDX-License-Identifier: Apache-2.0
//
// Which control packets of a peer were seen: a sliding window over their sequence numbers. A number
// is accepted once; numbers that fell out of the window are refused, seen or not, so that a
// recorded packet can never be played again. Sequence numbers start at 1 and must not run out in an
// epoch: at a million control packets a second that is over an hour, and a new epoch starts a new
// window.
#pragma once

#include <array>
#include <cstdint>

namespace spillway::transport {

class ReplayWindow {
 public:
  static constexpr std::uint32_t kWidth = 256;

  // True the first time a number is seen, as long as it is not too old to tell.
  bool accept(std::uint32_t sequence) {
    if (sequence == 0 || sequence + std::uint64_t{kWidth} <= newest_) {
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
  std::uint64_t& word(std::uint32_t sequence) { return seen_[sequence % kWidth / 64]; }
  static std::uint64_t bit(std::uint32_t sequence) { return std::uint64_t{1} << (sequence % 64); }

  void advance(std::uint32_t sequence) {
    if (sequence - newest_ >= kWidth) {
      seen_.fill(0);
    } else {
      for (std::uint32_t cleared = newest_ + 1; cleared != sequence + 1; ++cleared) {
        word(cleared) &= ~bit(cleared);
      }
    }
    newest_ = sequence;
  }

  std::uint32_t newest_ = 0;
  std::array<std::uint64_t, kWidth / 64> seen_{};
};

}  // namespace spillway::transport
