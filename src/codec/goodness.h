// SPDX-License-Identifier: Apache-2.0
//
// Does a rotated row look like Gaussian draws? The plane code is unbiased for rows that do.
//
// Rows that do not are few but real: a constant row, a row of some hundred equal values, a single
// non-zero padded to 256. Their rotation falls on a lattice, and where the lattice points lie in
// their cells biases a short prefix by a few percent. Such a row passes after one more round.
//
// The test is Pearson's chi-square over the 8-plane magnitude cells of a sample of the row's
// coordinates, which are exchangeable. A lattice coarse enough to matter empties or crowds cells
// and fails it; the threshold lies eight deviations out, and a Gaussian row that fails all the same
// only costs a round. It counts codes, so every CPU decides alike.
#pragma once

#include <cstdint>
#include <span>

namespace spillway::codec {

// `high_codes` holds the first eight planes of each coordinate of a row (see plane_code.h).
bool looks_gaussian(std::span<const std::uint8_t> high_codes);

}  // namespace spillway::codec
