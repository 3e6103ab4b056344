// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/spread.h"

#include <bit>
#include <cmath>
#include <limits>

#include "codec/reference/saturated.h"

namespace spillway::codec::reference {
namespace {

constexpr double kDeviationsKept = 2.5;
constexpr std::uint32_t kQuietBit = 0x00400000;

double deviation(std::span<const float> tensor) {
  if (tensor.empty()) {
    return 0.0;
  }
  const auto count = static_cast<double>(tensor.size());
  double sum = 0.0;
  for (const float value : tensor) {
    if (!std::isfinite(value)) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    sum += value;
  }
  double squares = 0.0;
  for (const float value : tensor) {
    const double centred = value - sum / count;
    squares += centred * centred;
  }
  return std::sqrt(squares / count);
}

}  // namespace

float standard_deviation(std::span<const float> tensor) {
  return saturated(deviation(tensor));
}

float clipping_limit(std::span<const float> tensor) {
  return saturated(kDeviationsKept * deviation(tensor));
}

std::uint32_t shortened(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return (std::isnan(value) ? bits | kQuietBit : bits) >> 1;
}

float lengthened(std::uint32_t tail) {
  return std::bit_cast<float>(tail << 1);
}

}  // namespace spillway::codec::reference
