// SPDX-License-Identifier: Apache-2.0
//
// One random number per coordinate, the same at both ends of a wire: the draw of coordinate i is
// word i % 4 of the counter generator's block {i / 4 (64 bits), 0, domain} under the tensor's seed.
// The domain keeps codecs that share a seed independent of each other and of the rotation's signs.
//
// Coordinates may be asked for in any order; ascending order computes each block once. One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/random.h"

namespace spillway::codec::reference {

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

}  // namespace spillway::codec::reference
