// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch/support_predictor.h"

#include <algorithm>

#include "base/check.h"

namespace spillway::codec::sketch {
namespace {

// Counters of 64 indices, one bit of each per word: up where `up` is set, down elsewhere.
void count_word(std::uint64_t up, std::uint64_t& upper, std::uint64_t& lower) {
  const std::uint64_t raised_upper = upper | lower;
  const std::uint64_t raised_lower = upper | ~lower;
  const std::uint64_t lowered_upper = upper & lower;
  const std::uint64_t lowered_lower = upper & ~lower;
  upper = (up & raised_upper) | (~up & lowered_upper);
  lower = (up & raised_lower) | (~up & lowered_lower);
}

std::uint64_t fold(std::uint64_t hash, const Support& support) {
  for (const std::uint64_t word : support.words()) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

SupportPredictor::SupportPredictor(std::size_t length, PredictionRule rule)
    : rule_(rule),
      predicted_(Support::all(length)),
      lower_(rule == PredictionRule::kCounter ? length : 0) {}

void SupportPredictor::advance(const Support& nonzero) {
  SPILLWAY_CHECK(nonzero.length() == predicted_.length());
  if (rule_ == PredictionRule::kLast) {
    predicted_ = nonzero;
    return;
  }
  for (std::size_t word = 0; word < nonzero.words().size(); ++word) {
    count_word(nonzero.words()[word], predicted_.words()[word], lower_.words()[word]);
  }
}

void SupportPredictor::reset() {
  predicted_ = Support::all(predicted_.length());
  lower_ = Support(lower_.length());
}

std::uint64_t SupportPredictor::fingerprint() const {
  return fold(fold(predicted_.length(), predicted_), lower_);
}

}  // namespace spillway::codec::sketch
