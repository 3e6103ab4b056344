// SPDX-License-Identifier: Apache-2.0
//
// The quantisers of N(0, 1) with the least squared error for 2^bits levels: every boundary is the
// midpoint of its neighbouring centroids, every centroid the mean of N(0, 1) in its cell (Lloyd,
// IEEE Trans. Inf. Theory 28, 1982; Max, IRE Trans. Inf. Theory 6, 1960).
//
// The levels are computed on the first call and then only read: safe from any thread. Newton's
// method solves the two conditions, because the usual alternation takes tens of thousands of rounds
// for 256 levels. They use libm, so the last bit of a level may differ between systems: good for
// comparisons, not for a wire format.
//
// Limits: 1 .. kMaxQuantiserBits bits.
#pragma once

#include <cstdint>
#include <vector>

namespace spillway::codec::reference {

inline constexpr unsigned kMaxQuantiserBits = 8;

struct Quantiser {
  unsigned bits;
  std::vector<float> centroids;   // 2^bits, ascending, odd about zero
  std::vector<float> boundaries;  // 2^bits - 1; boundary i lies between centroids i and i + 1
  double distortion;              // E[(z - centroid)^2]

  // The cell of z; zero belongs to the cell above it. A NaN gives an arbitrary cell.
  std::uint32_t index_of(float z) const;
};

// The quantiser with 2^bits levels. `bits` outside 1 .. kMaxQuantiserBits is a bug.
const Quantiser& lloyd_max_quantiser(unsigned bits);

}  // namespace spillway::codec::reference
