// SPDX-License-Identifier: Apache-2.0
//
// EDEN with 1 to 8 bits per coordinate (Vargaftik et al., ICML'22); with one bit it is DRIVE
// (Vargaftik et al., NeurIPS'21). It is the best known unbiased code of each length, but not an
// embedded one: its bits cannot be trimmed. Spillway's planes are measured against it.
//
// Each row x of d coordinates (coordinates.h) is rotated, y = H D x / sqrt(d), and z = y
// sqrt(d)/|y| is quantised to centroids c of N(0, 1). The receiver computes S c with S = |y|^2 /
// <c, y> and rotates back. That is unbiased over seeds for rows whose rotation looks Gaussian. As
// in the papers there is only one rotation, so a row of a few non-zeros or equal values keeps a
// small bias.
//
//   row on the wire    S as fp32, then d indices of `bits` bits (bit_packing.h), padding included
//
// Edges: a row of zeros decodes to zeros. A row with a NaN or an infinity decodes to all NaN, so
// that it is noticed. S saturates at the largest float. If a row's rms is denormal, so is S, with
// as few digits. Thread-safe: no mutable state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "codec/reference/lloyd_max.h"
#include "codec/reference/reference_codec.h"

namespace spillway::codec::reference {

class EdenCodec final : public ReferenceCodec {
 public:
  explicit EdenCodec(unsigned bits);  // 1 .. kMaxQuantiserBits

  std::string_view name() const override { return name_; }
  std::size_t encoded_bytes(std::size_t count) const override;

 private:
  void encode_into(std::span<const float> tensor, std::uint64_t seed,
                   base::MutableByteView bytes) const override;
  base::Status decode_from(base::ByteView bytes, std::uint64_t seed,
                           std::span<float> out) const override;

  const Quantiser& quantiser_;
  std::string name_;
};

}  // namespace spillway::codec::reference
