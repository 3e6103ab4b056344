// SPDX-License-Identifier: Apache-2.0
#include "wire/polyval.h"

#include <array>

namespace spillway::wire {
namespace {

__extension__ using Wide = unsigned __int128;

// Multiplies every kStride-th bit of 64-bit factors at a time. At most 13 partial products then
// meet at one bit position, and its kStride bits of room can count to 13. So no sum reaches the
// next position, and the lowest bit of each is the sum without carries.
constexpr unsigned kStride = 5;

constexpr Wide every_bit_from(unsigned first) {
  Wide mask = 0;
  for (unsigned bit = first; bit < 128; bit += kStride) {
    mask |= Wide{1} << bit;
  }
  return mask;
}
constexpr std::array<Wide, kStride> kMasks = {
    every_bit_from(0), every_bit_from(1), every_bit_from(2), every_bit_from(3), every_bit_from(4)};

Wide carryless_product(std::uint64_t a, std::uint64_t b) {
  Wide product = 0;
  for (unsigned place = 0; place < kStride; ++place) {
    Wide sum = 0;
    for (unsigned i = 0; i < kStride; ++i) {
      const unsigned j = (place + kStride - i) % kStride;
      sum ^= Wide{a & static_cast<std::uint64_t>(kMasks[i])} *
             (b & static_cast<std::uint64_t>(kMasks[j]));
    }
    product |= sum & kMasks[place];
  }
  return product;
}

std::uint64_t low_half(Wide value) {
  return static_cast<std::uint64_t>(value);
}
std::uint64_t high_half(Wide value) {
  return static_cast<std::uint64_t>(value >> 64);
}

// Divides by x^64: adds the multiple of the modulus that clears the low half, then drops that half.
PolyvalElement divide(PolyvalElement value) {
  const std::uint64_t low = value.low;
  return {value.high ^ (low << 63) ^ (low << 62) ^ (low << 57),
          low ^ (low >> 1) ^ (low >> 2) ^ (low >> 7)};
}

}  // namespace

PolyvalElement polyval_product(PolyvalElement a, PolyvalElement b) {
  const Wide low = carryless_product(a.low, b.low);
  const Wide high = carryless_product(a.high, b.high);
  const Wide middle = carryless_product(a.low ^ a.high, b.low ^ b.high) ^ low ^ high;
  const PolyvalElement lower = {low_half(low), high_half(low) ^ low_half(middle)};
  const PolyvalElement upper = {low_half(high) ^ high_half(middle), high_half(high)};
  return upper ^ divide(divide(lower));
}

}  // namespace spillway::wire
