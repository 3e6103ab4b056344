// SPDX-License-Identifier: Apache-2.0
//
// Products in the field of POLYVAL (RFC 8452, section 3), in portable constant-time code.
// section_kernels_highway.cc does the same on processors with carry-less multiplication. Pure
// functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace spillway::wire {

inline constexpr std::size_t kPolyvalBlock = 16;  // bytes

// A polynomial over GF(2): bit i of the 128, least significant first, is the coefficient of x^i.
struct PolyvalElement {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  friend PolyvalElement operator^(PolyvalElement a, PolyvalElement b) {
    return {a.low ^ b.low, a.high ^ b.high};
  }
  friend bool operator==(PolyvalElement, PolyvalElement) = default;
};

inline PolyvalElement polyval_element(const std::uint8_t* bytes) {
  return {base::load_le<std::uint64_t>(bytes), base::load_le<std::uint64_t>(bytes + 8)};
}

// a * b / x^128 modulo x^128 + x^127 + x^126 + x^121 + 1: RFC 8452's dot.
PolyvalElement polyval_product(PolyvalElement a, PolyvalElement b);

}  // namespace spillway::wire
