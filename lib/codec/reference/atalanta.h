// SPDX-License-Identifier: Apache-2.0
//
// Atalanta, as far as APack (arXiv 2201.08830) describes it. Values fall into sixteen ranges. The
// range is arithmetic-coded with 10-bit cumulative counts in 16-bit registers; the offset within it
// follows as raw bits.
//
// The table is made from the learned values. The original search moves boundaries step by step.
// Here dynamic programming over the histogram finds the ranges with the fewest bits exactly (in
// steps, if values span more than 4096). Ranges cover twice what was seen. A message with values
// beyond that, or before anything is learned, is packed (fixed_length_coders.h).
#pragma once

#include <array>

#include "codec/reference/fixed_length_coders.h"
#include "codec/reference/integer_coder.h"

namespace spillway::codec::reference {

inline constexpr std::size_t kAtalantaRanges = 16;
inline constexpr unsigned kAtalantaBits = 10;

// One range: at most values first .. first + 2^offset_bits - 1; counts from `low` up to, not
// including, `high`.
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
  std::size_t used_ = 0;  // 0 before anything is learned
  std::int32_t smallest_ = 0;
  std::int32_t largest_ = -1;
  PackedCoder packed_;
};

}  // namespace spillway::codec::reference
