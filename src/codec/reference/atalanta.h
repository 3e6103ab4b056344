// SPDX-License-Identifier: Apache-2.0
//
// Atalanta, as far as APack (arXiv 2201.08830) tells of it: values fall into sixteen ranges; which
// one is arithmetic-coded with 10-bit cumulative counts in 16-bit registers, the place within it
// follows raw.
//
// The table is made for the values that were learned. Their search moves boundaries step by step;
// here the ranges with the fewest bits are found exactly, by dynamic programming over the histogram
// (in steps where values lie more than 4096 apart). Ranges hold twice what was seen. A
// message with values beyond that, or before anything is learned, is packed
// (fixed_length_coders.h).
#pragma once

#include <array>

#include "codec/reference/fixed_length_coders.h"
#include "codec/reference/integer_coder.h"

namespace spillway::codec::reference {

inline constexpr std::size_t kAtalantaRanges = 16;
inline constexpr unsigned kAtalantaBits = 10;

// One row: values first .. first + 2^offset_bits - 1 at most; counts from `low` to before `high`.
struct AtalantaRange {
  std::int32_t first = 0;
  unsigned offset_bits = 0;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
};

class AtalantaCoder : public IntegerCoder {
 public:
  std::string_view name() const override { return "atalanta"; }
  void learn(std::span<const std::int32_t> values) override;
  std::vector<std::uint8_t> encode(std::span<const std::int32_t> values) override;
  base::Status decode(base::ByteView bytes, std::span<std::int32_t> values) override;

  std::span<const AtalantaRange> ranges() const { return {ranges_.data(), used_}; }

 private:
  std::size_t range_of(std::int32_t value) const;

  std::array<AtalantaRange, kAtalantaRanges> ranges_;
  std::size_t used_ = 0;  // none before anything is learned
  std::int32_t smallest_ = 0;
  std::int32_t largest_ = -1;
  PackedCoder packed_;
};

}  // namespace spillway::codec::reference
