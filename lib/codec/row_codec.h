// SPDX-License-Identifier: Apache-2.0
//
// The planes code for rows: how a tensor is cut into rows, and how a row becomes planes and values
// again.
//
// A row is the part of a tensor that is rotated and scaled together. All rows have the chosen
// power-of-two length except the last, which is padded with zeros to the smallest sufficient power
// of two, at least 2^kMinRowLog2. A tensor of length 0 has no rows.
//
//   length 70,000, rows of 2^15:   [32768] [32768] [4464 values, padded to 8192]
//
// Encoding: rotate, scale, quantise, split into planes. Decoding accepts whatever part of the
// planes arrived: decode_planes() reads each packet once, in any order, and finish_row() rotates
// the row back. Besides planes, a decoder needs the RowHeader, a few bytes in every packet of the
// row, so that no packet depends on another.
//
// Both ends compute the layout from (length, row_log2). Results depend only on the arguments, never
// on the CPU. A RowEncoder belongs to one thread; all else is stateless.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/kernels.h"
#include "codec/plane_code.h"
#include "codec/rotation.h"

namespace spillway::codec {

// ------------------------------------------------------------------ rows of a tensor

struct Row {
  std::size_t offset;    // of its first value in the tensor
  std::size_t values;    // number of values of the tensor
  unsigned log2_length;  // of the row with its padding

  std::size_t length() const { return std::size_t{1} << log2_length; }
  friend bool operator==(const Row&, const Row&) = default;
};

class RowLayout {
 public:
  // row_log2 must lie in [kMinRowLog2, kMaxRowLog2].
  RowLayout(std::size_t tensor_length, unsigned row_log2);

  std::size_t tensor_length() const { return tensor_length_; }
  unsigned row_log2() const { return row_log2_; }
  std::size_t row_count() const { return row_count_; }
  Row row(std::size_t index) const;

 private:
  std::size_t tensor_length_;
  unsigned row_log2_;
  std::size_t row_count_;
};

// Special rows have special scales:
//   scale 0      an all-zero row (or one too small for a float scale): decodes to zeros
//   scale NaN    a row that contains a NaN or an infinity: decodes to all NaN, so that loss scalers
//                that look for non-finite gradients still find them
struct RowHeader {
  float scale = 0.0F;      // of one unit of the plane code
  unsigned rotations = 0;  // 1..kMaxRotations; 0 only if the scale is 0 or NaN
};

// ------------------------------------------------------------------ encoding

// Encodes one row at a time. It measures the row and rotates it once, or more often if the row is
// spiky or still does not look Gaussian. Coordinates are coded in units of the row's root mean
// square. Allocates scratch memory for one row (about 256 KiB) when constructed.
class RowEncoder {
 public:
  explicit RowEncoder(const Kernels& kernels = best_kernels());

  // Encodes `values` (at most 2^log2_length, padded with zeros) with `planes` planes. The codes
  // stay here until the next call.
  RowHeader encode(std::span<const float> values, unsigned log2_length, RotationId rotation,
                   unsigned planes);

  // Writes coordinates [first, first + count) of the encoded row as `planes` planes of count / 8
  // bytes each, most significant first. `first` and `count` are multiples of kSpanQuantum.
  void write_planes(std::size_t first, std::size_t count, unsigned planes, std::uint8_t* out) const;

 private:
  // Copies the values into row_ and appends zeros.
  const float* pad(std::span<const float> values, std::size_t length);
  RowHeader special_row(float scale, std::size_t length, unsigned planes);
  float quantise_row(unsigned log2_length, RotationId rotation, double rms, RowHeader& header);

  const Kernels& kernels_;
  std::vector<float> row_;
  // Byte k of each coordinate's code holds planes 8k .. 8k+7.
  std::array<std::vector<std::uint8_t>, kMaxPlanes / 8> codes_;
};

// ------------------------------------------------------------------ decoding
//
// Each coordinate's estimate depends on its own number of planes. The other coordinates of the row
// compensate for missing ones; that is right on average, because the rotation made them alike.
// No byte outside the given spans is read.

// A run of one row's coordinates as it arrived: `planes` planes of count / 8 bytes were sent, and
// the first bytes.size() bytes arrived. `count` is a multiple of kSpanQuantum.
struct PlaneSpan {
  std::span<const std::uint8_t> bytes;
  std::size_t count;
  unsigned planes;
};

// How many planes the bytes of a span cover.
struct PlanePrefix {
  unsigned whole_planes;    // present for every coordinate
  std::size_t extra_bytes;  // bytes of the next plane
};
PlanePrefix plane_prefix(const PlaneSpan& span);

// Writes the estimate of each coordinate in units of the row's scale, zero without any plane.
// Returns how many coordinates have at least one plane.
std::size_t decode_planes(const Kernels& kernels, const PlaneSpan& span, Estimate estimate,
                          float* values);

// Turns a row of estimates back into values, in place. `arrived` is the number of the row's
// coordinates with an estimate; if it is 0, the row becomes zero.
void finish_row(const Kernels& kernels, const RowHeader& header, RotationId rotation,
                unsigned log2_length, std::size_t arrived, Estimate estimate, float* row);

}  // namespace spillway::codec
