// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace spillway::base {

std::uint32_t RandomSequence::next_word() {
  if (used_words_ == block_.size()) {
    block_ = random_block(key_, {static_cast<std::uint32_t>(counter_),
                                 static_cast<std::uint32_t>(counter_ >> 32), 0, 0});
    ++counter_;
    used_words_ = 0;
  }
  return block_[used_words_++];
}

std::uint64_t RandomSequence::next_below(std::uint64_t bound) {
  SPILLWAY_CHECK(bound > 0);
  const std::uint64_t word = (std::uint64_t{next_word()} << 32) | next_word();
  // Multiply-shift: the bias is at most bound / 2^64.
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(word) * bound) >> 64);
}

double RandomSequence::next_unit() {
  const std::uint64_t word = (std::uint64_t{next_word()} << 32) | next_word();
  return static_cast<double>(word >> 11) * 0x1p-53;
}

double RandomSequence::next_gaussian() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - next_unit()));
  return radius * std::cos(2.0 * std::numbers::pi * next_unit());
}

}  // namespace spillway::base
