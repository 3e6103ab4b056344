// SPDX-License-Identifier: Apache-2.0
//
// Planes back to values, whatever part of them arrived.
//
// Decoding has two steps, so that packets may arrive in any order and each is read once.
// decode_planes() turns one packet's bytes into estimates of its rotated coordinates. finish_row()
// rotates a row of estimates back. Each coordinate's estimate depends on its own number of planes.
// The other coordinates of the row make up for missing ones. That is right on average, because the
// rotation made them alike.
//
// Stateless; any thread. No byte outside the given spans is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/kernels.h"
#include "codec/plane_code.h"
#include "codec/rotation.h"
#include "codec/row.h"

namespace spillway::codec {

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
