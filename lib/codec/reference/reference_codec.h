// SPDX-License-Identifier: Apache-2.0
//
// Compressors of whole tensors from the literature, to compare Spillway's codec with, behind one
// small interface. Nothing on a data path uses them, so they favour plain code over speed.
//
// Names: eden-1 .. eden-8 (EdenCodec; drive is another name for eden-1), bf16, fp16, int8, topk-1.
//
// Invariants: an encoding of `count` coordinates takes encoded_bytes(count) bytes with side
// information, whatever the values. encode and decode are pure functions of their arguments. decode
// accepts any bytes, reads none outside its span and writes `out` only on success. Each codec's
// comment says how it treats NaN, infinities and denormals.
//
// Threads: a codec holds no mutable state and may be shared. Limit: kMaxTensorLength coordinates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
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

// ------------------------------------------------------------------ bf16 and fp16
//
// The two 16-bit floats, bf16 (8 exponent bits, 7 mantissa bits) and IEEE 754 binary16 (5 and 10):
// conversions of single numbers, and codecs with two bytes per coordinate. The seed is unused.
//
// Both round to nearest, ties to even, on any hardware. Values beyond the range become infinities.
// Results below the normal range are correctly rounded denormals; signs of zeros are kept. A NaN
// keeps the payload bits that fit and becomes a quiet NaN if none would be left. Conversion back is
// exact.

std::uint16_t float_to_bf16(float value);
float bf16_to_float(std::uint16_t bits);

std::uint16_t float_to_fp16(float value);
float fp16_to_float(std::uint16_t bits);

class Bf16Codec final : public ReferenceCodec {
 public:
  std::string_view name() const override { return "bf16"; }
  std::size_t encoded_bytes(std::size_t count) const override { return 2 * count; }

 private:
  void encode_into(std::span<const float> tensor, std::uint64_t seed,
                   base::MutableByteView bytes) const override;
  base::Status decode_from(base::ByteView bytes, std::uint64_t seed,
                           std::span<float> out) const override;
};

class Fp16Codec final : public ReferenceCodec {
 public:
  std::string_view name() const override { return "fp16"; }
  std::size_t encoded_bytes(std::size_t count) const override { return 2 * count; }

 private:
  void encode_into(std::span<const float> tensor, std::uint64_t seed,
                   base::MutableByteView bytes) const override;
  base::Status decode_from(base::ByteView bytes, std::uint64_t seed,
                           std::span<float> out) const override;
};

// ------------------------------------------------------------------ int8
//
// Block-wise int8: one fp32 scale per 256 coordinates, the largest magnitude over 127, and
// stochastic rounding to multiples of it (the quantiser of QSGD, Alistarh et al., NIPS'17, with the
// maximum norm and 127 levels). 8.125 bits per coordinate in full blocks.
//
// A coordinate x becomes floor(x / scale + u) with u uniform in [0, 1), drawn from the shared seed
// (the decoder does not need it). That is unbiased over seeds to 2^-32 of a step, and never off by
// a whole step.
//
//   block on the wire    scale as fp32, then one int8 in -127 .. 127 per coordinate
//
// Edges: a block of zeros decodes to zeros. The bound above also holds for denormals and the
// largest floats. A block with a NaN or an infinity decodes to all NaN. The code -128 and a
// negative or infinite scale are never sent, so decode calls them malformed.

inline constexpr std::size_t kInt8Block = 256;

class Int8BlockCodec final : public ReferenceCodec {
 public:
  std::string_view name() const override { return "int8"; }
  std::size_t encoded_bytes(std::size_t count) const override;

 private:
  void encode_into(std::span<const float> tensor, std::uint64_t seed,
                   base::MutableByteView bytes) const override;
  base::Status decode_from(base::ByteView bytes, std::uint64_t seed,
                           std::span<float> out) const override;
};

// ------------------------------------------------------------------ top-k
//
// Top-k sparsification with k = 1 % of the coordinates, rounded up (Aji and Heafield, EMNLP'17;
// Stich et al., NeurIPS'18): the k largest magnitudes travel exactly, the rest decode to zero.
// 0.64 bits per coordinate. Biased by design: use it with error feedback.
//
//   on the wire    k times (index as uint32, value as fp32), indices strictly ascending
//
// Ties go to the lower index, so the choice is deterministic; the seed is unused. Magnitudes are
// compared as bit patterns: infinities exceed all numbers and NaNs exceed infinities. So both are
// always sent, and arrive exactly. Indices out of order or out of range are malformed.

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

// ------------------------------------------------------------------ EDEN
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
//   row on the wire    S as fp32, then d indices of `bits` bits (coordinates.h), padding included
//
// Edges: a row of zeros decodes to zeros. A row with a NaN or an infinity decodes to all NaN, so
// that it is noticed. S saturates at the largest float. If a row's rms is denormal, so is S, with
// as few digits. Thread-safe: no mutable state.

// ------------------------------------------------------------------ Lloyd-Max quantisers
//
// The quantisers of N(0, 1) with the least squared error for 2^bits levels: every boundary is the
// midpoint of its neighbouring centroids, every centroid the mean of N(0, 1) in its cell (Lloyd,
// IEEE Trans. Inf. Theory 28, 1982; Max, IRE Trans. Inf. Theory 6, 1960).
//
// The levels are computed on the first call and then only read: safe from any thread. Newton's
// method solves the two conditions, because the usual alternation takes tens of thousands of rounds
// for 256 levels. They use libm, so the last bit of a level may differ between systems: good for
// comparisons, not for a wire format.

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

// ------------------------------------------------------------------ the codec

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
