// SPDX-License-Identifier: Apache-2.0
//
// Trimmable encoding "rht" (HotNets'24; its heads are DRIVE, NeurIPS'21): each row x of n
// coordinates (reference_rows.h) is rotated, y = H D x / sqrt(n), and y travels as sign bits
// (heads) and the other 31 bits of each float (tails). Metadata is f = |x|_2^2 / |y|_1 per row.
//
// Trimmed coordinates decode to f * sign(y), lost ones to zero, both in the rotated domain; then
// the row is rotated back, which spreads the damage over all of it. With a fraction t trimmed the
// error is (pi/2 - 1) t = 0.571 t of the energy, whatever the data, and unbiased over seeds for
// rows that rotate to something like Gaussian draws. Whole packets are exact in y; x comes back up
// to fp32 rounding, about 1e-7 of the norm of the row. Packets may straddle rows.
//
// Edges: a row of zeros decodes to zeros. A row with a NaN or an infinity, or with values so large
// (beyond 2^112) that rotating them may overflow, decodes to NaN throughout. Denormals round to
// multiples of the smallest one. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "codec/reference/trimmable.h"

namespace spillway::codec::reference {

class RotatedSign final : public TrimmableEncoding {
 public:
  explicit RotatedSign(std::size_t coordinates_per_packet)
      : TrimmableEncoding(coordinates_per_packet) {}

  std::string_view name() const override { return "rht"; }

 private:
  std::size_t word_count(std::size_t count) const override;
  std::size_t metadata_count(std::size_t count) const override;
  Coded to_words(std::span<const float> tensor, std::uint64_t seed) const override;
  void from_words(const Received& received, std::span<const float> metadata, std::uint64_t seed,
                  std::span<float> out) const override;
};

}  // namespace spillway::codec::reference
