// SPDX-License-Identifier: Apache-2.0
#include "codec/block_code.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "codec/lanes.h"

namespace spillway::codec {
namespace {

constexpr float kLargestFloat = std::numeric_limits<float>::max();

// The exponent of the smallest power of two above a scale.
int exponent_above(float scale) {
  int exponent = 0;
  static_cast<void>(std::frexp(scale, &exponent));
  return exponent;
}

// Adding this to a double below 2^51 leaves the nearest integer in the low bits, with ties to even.
// Such a loop vectorises on every machine.
constexpr double kRoundingShift = 0x1.8p52;

std::uint32_t nearest_integer(double value) {
  return static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(value + kRoundingShift));
}

// The bits of 2^52 + number; also for vectorisation.
constexpr double kNumberShift = 0x1p52;

double shifted_double(std::uint32_t number) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(kNumberShift) | number);
}

std::int32_t magnitude_bits(float value) {
  return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU);
}

std::size_t count_beyond(std::span<const float> values, float limit) {
  const std::int32_t most = magnitude_bits(limit);
  std::uint32_t beyond = 0;
  for (const float value : values) {
    beyond += magnitude_bits(value) > most ? 1 : 0;
  }
  return beyond;
}

}  // namespace

BlockCode BlockCode::for_contributors(unsigned contributors) {
  SPILLWAY_CHECK(contributors >= 1 && contributors <= kMaxContributors);
  const std::uint32_t room = std::numeric_limits<std::uint32_t>::max() / contributors;
  return {static_cast<unsigned>(std::bit_width(room)) - 2};
}

// Compares bit patterns: those of infinities and NaN exceed those of all numbers.
float measure_block(std::span<const float> values) {
  std::int32_t largest = 0;
  for (const float value : values) {
    largest = std::max(largest, magnitude_bits(value));
  }
  const auto measure = std::bit_cast<float>(largest);
  return std::isfinite(measure) ? measure : std::numeric_limits<float>::quiet_NaN();
}

std::size_t encode_block(const BlockCode& code, std::span<const float> values, float scale,
                         std::span<std::uint32_t> numbers) {
  SPILLWAY_CHECK(values.size() == numbers.size());
  if (is_special_scale(scale)) {
    std::fill(numbers.begin(), numbers.end(), code.middle());
    return 0;
  }
  const int exponent = exponent_above(scale);
  const double factor = std::ldexp(1.0, static_cast<int>(code.precision) - exponent);
  const double most = code.middle();
  const std::uint32_t middle = code.middle();
  const float* const from = values.data();
  std::uint32_t* const to = numbers.data();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double steps = from[i] * factor;
    const double raised = steps > -most ? steps : -most;  // NaN becomes a number, too
    to[i] = nearest_integer(raised < most ? raised : most) + middle;
  }
  const double power = std::min<double>(std::ldexp(1.0, exponent), kLargestFloat);
  return count_beyond(values, static_cast<float>(power));
}

void decode_block_sums(const BlockCode& code, std::span<const std::uint32_t> sums, float scale,
                       unsigned contributors, double weight, std::span<float> values) {
  SPILLWAY_CHECK(sums.size() == values.size());
  if (contributors == 0 || is_special_scale(scale)) {
    std::fill(values.begin(), values.end(), std::isnan(scale) ? scale : 0.0F);
    return;
  }
  const double factor =
      std::ldexp(weight / contributors, exponent_above(scale) - static_cast<int>(code.precision));
  const double middle = kNumberShift + static_cast<double>(contributors) * code.middle();
  const std::uint32_t* const from = sums.data();
  float* const to = values.data();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    to[i] = static_cast<float>((shifted_double(from[i]) - middle) * factor);
  }
}

}  // namespace spillway::codec
