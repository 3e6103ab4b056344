// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a set of indices, of those that another set leaves: the misses of a prediction.
// Indices of the other set are known not to be in this one, so they take no room: what is coded is
// positions among those that are left, and a message about nothing is one byte.
//
//   kEmpty    form u8
//   kBitmap   form u8, then a bit per position, the first in the lowest bit of the first byte
//   kRuns     form u8, gap parameter u8, run parameter u8, runs u32, then for every run of
//             neighbouring positions the gap before it and its length less one, Rice coded
//
// Runs, because zeros come in rows: of an embedding all of a row is there, or nothing. For
// positions that stand alone this is a tenth above the entropy. The encoder takes the shortest
// form, so a set never takes more than encoded_support_limit() bytes.
//
// A Bloom filter would take 1.44 log2(1 / f) bits an index, 16 where one position in two hundred
// is set and false ones are to be a tenth of these; runs take 10, and are exact. But filters and
// bitmaps can be or'ed as they are, where runs must be decoded first.
//
// Decoding accepts any bytes: an error for what no encoder writes, work bounded by the tensor's
// length and the bytes. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/sketch/support.h"

namespace spillway::codec::sketch {

// Both sets are of the same tensor and have no index in common. The tensor has at most
// kMaxSupportLength values.
std::vector<std::uint8_t> encode_support(const Support& chosen, const Support& excluded);

// The set; `excluded` is what it was encoded with.
base::Result<Support> decode_support(base::ByteView bytes, const Support& excluded);

// How many bytes an encoding takes at most, for so many positions that are not excluded.
std::size_t encoded_support_limit(std::size_t positions);

inline constexpr std::uint64_t kMaxSupportLength = std::uint64_t{1} << 32;

}  // namespace spillway::codec::sketch
