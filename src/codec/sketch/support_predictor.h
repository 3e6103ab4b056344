// SPDX-License-Identifier: Apache-2.0
//
// Which values of the next reduced gradient will not be zero, by the last ones: known to all ranks
// without a word, because all hold the same sums.
//
//   kLast      where the last one was not zero
//   kCounter   a counter from 0 to 3 per index goes up where it was not zero and down where it
//              was; 2 and more says that it will be again. One step does not change its mind
//
// At the start everything is predicted: the first step goes densely and tells all.
//
// Ranks advance alike or not at all: only with a sum that all of them hold. fingerprint() tells
// ranks that differ, which then reset(). One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/sketch/support.h"

namespace spillway::codec::sketch {

enum class PredictionRule : std::uint8_t { kLast, kCounter };

class SupportPredictor {
 public:
  SupportPredictor(std::size_t length, PredictionRule rule);

  const Support& predicted() const { return predicted_; }
  // What the last sum turned out to be.
  void advance(const Support& nonzero);
  void reset();
  std::uint64_t fingerprint() const;

 private:
  PredictionRule rule_;
  Support predicted_;  // the counters' upper bits
  Support lower_;      // and their lower ones; empty for kLast
};

}  // namespace spillway::codec::sketch
