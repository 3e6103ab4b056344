// SPDX-License-Identifier: Apache-2.0
//
// What a worker tells a parameter server it is about to do: an operation as 32 bytes,
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
// takes calls of planes, and refuses others for their flags. What is a worker's own business
// (buffers, what it calls a tensor whose errors it feeds back) is not in it. docs/wire.md says how
// calls travel.
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
// Without buffers. validate() says whether its numbers make sense.
base::Result<Operation> parse_call(base::ByteView bytes);

// Whether two workers mean the same operation. Each may find it as urgent as it likes.
bool are_alike(const Operation& a, const Operation& b);

}  // namespace spillway::collective
