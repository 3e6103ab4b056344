// SPDX-License-Identifier: Apache-2.0
//
// Top-k sparsification with k = 1 % of the coordinates, rounded up (Aji and Heafield, EMNLP'17;
// Stich et al., NeurIPS'18): the k largest magnitudes travel exactly, the rest decode to zero.
// 0.64 bits per coordinate. Biased by design: use it with error feedback.
//
//   on the wire    k times (index as uint32, value as fp32), indices strictly ascending
//
// Ties go to the lower index, so the choice is deterministic; the seed is unused. Magnitudes are
// compared as bit patterns: infinities exceed all numbers and NaNs exceed infinities. So both are
// always sent, and arrive exactly. Indices out of order or out of range are malformed. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "codec/reference/reference_codec.h"

namespace spillway::codec::reference {

inline constexpr std::size_t kTopKPercent = 1;

class TopKCodec final : public ReferenceCodec {
 public:
  std::string_view name() const override { return "topk-1"; }
  std::size_t encoded_bytes(std::size_t count) const override;

 private:
  void encode_into(std::span<const float> tensor, std::uint64_t seed,
                   base::MutableByteView bytes) const override;
  base::Status decode_from(base::ByteView bytes, std::uint64_t seed,
                           std::span<float> out) const override;
};

}  // namespace spillway::codec::reference
