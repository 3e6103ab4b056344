// SPDX-License-Identifier: Apache-2.0
//
// What a decoder needs to know about a row besides its planes: a few bytes that every packet of the
// row carries, so that no packet depends on another.
//
// Special rows are told by the scale alone:
//   scale 0      an all-zero row (or one too small for a float scale): decodes to zeros
//   scale NaN    a row with a NaN or an infinity in it: decodes to NaN throughout, so that loss
//                scalers that look for non-finite gradients still find them
#pragma once

namespace spillway::codec {

struct RowHeader {
  float scale = 0.0F;      // of one unit of the plane code
  unsigned rotations = 0;  // 1..kMaxRotations; 0 only where the scale is 0 or NaN
};

}  // namespace spillway::codec
