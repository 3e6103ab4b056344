// SPDX-License-Identifier: Apache-2.0
//
// Predicts the non-zero values of the next reduced gradient from the last ones. All ranks hold the
// same sums, so they predict the same without a message.
//
//   kLast      indices where the last sum was not zero
//   kCounter   a counter from 0 to 3 per index goes up if the sum was not zero there, else down;
//   from
//              2 on it predicts non-zero. A single step does not change a settled prediction
//
// At the start everything is predicted: the first step goes densely and shows where values are.
//
// Ranks advance only with a sum that all of them hold. fingerprint() detects ranks that differ;
// then all must reset(). One thread at a time.
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
  // Learns the non-zero indices of the last sum.
  void advance(const Support& nonzero);
  void reset();
  std::uint64_t fingerprint() const;

 private:
  PredictionRule rule_;
  Support predicted_;  // the counters' upper bits
  Support lower_;      // the counters' lower bits; empty for kLast
};

}  // namespace spillway::codec::sketch
