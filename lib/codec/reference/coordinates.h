// SPDX-License-Identifier: Apache-2.0
//
// Shared by the reference codecs: rows of 2^15, as in the papers; one random draw per coordinate,
// the same at both ends; and conversion to float without overflow.
//
// Pure functions; a CoordinateDraws belongs to one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/random.h"
#include "codec/row.h"

namespace spillway::codec::reference {

// Converts a double to float and clamps it to the largest float; the plain conversion is undefined
// beyond that. NaN stays NaN.
inline float saturated(double value) {
  constexpr double kMax = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kMax, kMax));
}

// The draw of coordinate i is word i % 4 of the counter generator's block {i / 4 (64 bits), 0,
// domain} under the tensor's seed. The domain keeps codecs with the same seed independent of each
// other and of the rotation's signs. Any order of coordinates works; ascending order computes each
// block once.
class CoordinateDraws {
 public:
  CoordinateDraws(std::uint64_t seed, std::uint32_t domain) : seed_(seed), domain_(domain) {
    load_block(0);
  }

  // Uniform in [0, 1) with 32 bits.
  double unit(std::size_t coordinate) {
    if (coordinate / 4 != block_index_) {
      load_block(coordinate / 4);
    }
    return static_cast<double>(block_[coordinate % 4]) * 0x1p-32;
  }

 private:
  void load_block(std::uint64_t index) {
    block_index_ = index;
    block_ = base::random_block(seed_, {static_cast<std::uint32_t>(index),
                                        static_cast<std::uint32_t>(index >> 32), 0, domain_});
  }

  std::uint64_t seed_;
  std::uint32_t domain_;
  std::uint64_t block_index_ = 0;
  base::RandomBlock block_{};
};

inline RowLayout reference_rows(std::size_t tensor_length) {
  return RowLayout(tensor_length, kMaxRowLog2);
}

// The length of all rows with their padding.
inline std::size_t padded_length(const RowLayout& rows) {
  if (rows.row_count() == 0) {
    return 0;
  }
  const Row last = rows.row(rows.row_count() - 1);
  return last.offset + last.length();
}

}  // namespace spillway::codec::reference
