// SPDX-License-Identifier: Apache-2.0
//
// A call tells a parameter server what a worker is about to do: an operation as 32 bytes,
// little-endian.
//
//   0 version (1)   4 algorithm    8 count (8 bytes)      20 loss_bound_ppm (4)
//   1 kind          5 priority     16 precision           24 least_contributors (8, a double)
//   2 type          6 root (2)     17 gather_precision
//   3 reduction                    18 min_planes
//                                  19 flags: 1 tolerant, 2 lossy gather,
//                                     4 error feedback, 8 predicted scale;
//                                     bits 4 and 5: code
//
// Without a tolerance everything behind the count is zero. A server that does not know of codes
// takes calls of planes, and refuses others for their flags. What concerns only the worker
// (buffers, its name for a tensor with error feedback) is left out. docs/wire.md says how calls
// travel.
//
// Plain values; any bytes give an operation or an error.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "collective/operation.h"

namespace spillway::collective {

inline constexpr std::size_t kCallBytes = 32;
using CallBytes = std::array<std::uint8_t, kCallBytes>;

CallBytes encode_call(const Operation& operation);
// The operation has no buffers. validate() says whether its numbers make sense.
base::Result<Operation> parse_call(base::ByteView bytes);

// True if two workers mean the same operation; their priorities may differ.
bool are_alike(const Operation& a, const Operation& b);

}  // namespace spillway::collective
