// SPDX-License-Identifier: Apache-2.0
//
// The rivals of Spillway's codec: compressors of whole tensors from the literature behind one small
// interface. They serve comparisons and tests. Nothing on a data path uses them, so they favour
// plain code over speed.
//
// Names: eden-1 .. eden-8 (drive is another name for eden-1), bf16, fp16, int8, topk-1.
//
// Invariants: an encoding of `count` coordinates takes encoded_bytes(count) bytes with side
// information, whatever the values. encode and decode are pure functions of their arguments. decode
// accepts any bytes, reads none outside its span and writes `out` only on success. Each codec's
// header says how it treats NaN, infinities and denormals.
//
// Threads: a codec holds no mutable state and may be shared. Limit: kMaxTensorLength coordinates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace spillway::codec::reference {

// Top-k sends 32-bit indices. 2^32 coordinates are 16 GiB; a longer tensor is a caller's bug.
inline constexpr std::uint64_t kMaxTensorLength = std::uint64_t{1} << 32;

class ReferenceCodec {
 public:
  virtual ~ReferenceCodec() = default;

  virtual std::string_view name() const = 0;
  virtual std::size_t encoded_bytes(std::size_t count) const = 0;
  // Bits on the wire per coordinate of a tensor of that length; 0 for an empty tensor.
  double bits_per_coordinate(std::size_t count) const;

  // The decoder needs the same `seed`. It should differ from tensor to tensor: estimates are
  // unbiased over seeds.
  std::vector<std::uint8_t> encode(std::span<const float> tensor, std::uint64_t seed) const;

  // Estimates a tensor of `count` coordinates; `out` must have exactly that size.
  base::Status decode(base::ByteView bytes, std::size_t count, std::uint64_t seed,
                      std::span<float> out) const;

 private:
  // `bytes` holds encoded_bytes(tensor.size()) zeros.
  virtual void encode_into(std::span<const float> tensor, std::uint64_t seed,
                           base::MutableByteView bytes) const = 0;
  // `bytes` holds encoded_bytes(out.size()) bytes of any content.
  virtual base::Status decode_from(base::ByteView bytes, std::uint64_t seed,
                                   std::span<float> out) const = 0;
};

// All codecs, in the order of the list above.
std::vector<std::unique_ptr<ReferenceCodec>> all_reference_codecs();

// The codec of that name; an unknown name gives an error that lists all names.
base::Result<std::unique_ptr<ReferenceCodec>> make_reference_codec(std::string_view name);

}  // namespace spillway::codec::reference
