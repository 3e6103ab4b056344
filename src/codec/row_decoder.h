// SPDX-License-Identifier: Apache-2.0
//
// Planes back into values, whatever came of them.
//
// Decoding has two steps, so that packets may come in any order and each is looked at once:
// decode_planes() turns the bytes of one packet into estimates of its rotated coordinates, and
// finish_row() rotates a row of such estimates back. Each coordinate counts for what it is: its own
// number of planes decides its estimate, and a coordinate of which nothing came is made up for by
// the others of its row, which is right on average because the rotation made them alike.
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

// A run of coordinates of one row as it arrived: `planes` planes of count / 8 bytes were sent, the
// first bytes.size() bytes of them came. `count` is a multiple of kSpanQuantum.
struct PlaneSpan {
  std::span<const std::uint8_t> bytes;
  std::size_t count;
  unsigned planes;
};

// How far the bytes of a span reach.
struct PlanePrefix {
  unsigned whole_planes;    // present for every coordinate
  std::size_t extra_bytes;  // of the plane after those
};
PlanePrefix plane_prefix(const PlaneSpan& span);

// Writes the estimate of each coordinate in units of the row's scale, zero where no plane came.
// Returns how many coordinates have at least one plane.
std::size_t decode_planes(const Kernels& kernels, const PlaneSpan& span, Estimate estimate,
                          float* values);

// Turns a row of estimates back into values, in place. `arrived` says how many of the row's
// coordinates have an estimate; with none the row becomes zero.
void finish_row(const Kernels& kernels, const RowHeader& header, RotationId rotation,
                unsigned log2_length, std::size_t arrived, Estimate estimate, float* row);

}  // namespace spillway::codec
