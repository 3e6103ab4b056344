// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a set of indices that excludes another set, such as the misses of a prediction.
// Excluded indices take no room: positions among the remaining ones are coded. An empty set is one
// byte.
//
//   kEmpty    form u8
//   kBitmap   form u8, then a bit per position, the first in the lowest bit of the first byte
//   kRuns     form u8, gap parameter u8, run parameter u8, runs u32, then for every run of
//   kRuns     form u8, gap parameter u8, run parameter u8, runs u32; then for every run of
//             neighbouring positions the gap before it and its length minus one, Rice coded
// Runs suit data whose zeros come in rows: a row of an embedding is there as a whole or not at all.
// For isolated positions they take a tenth more than the entropy. The encoder chooses the shortest
// form, so a set never exceeds encoded_support_limit() bytes.
//
// A Bloom filter takes 1.44 log2(1 / f) bits per index: 16 if one position in two hundred is set
// and false ones are to be a tenth of these. Runs take 10 and are exact. But filters and bitmaps
// can be or'ed directly, while runs must be decoded first.
//
// Decoding accepts any bytes. It fails for anything that no encoder writes, and its work is bounded
// by the tensor's length and the bytes. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/sketch/support.h"

namespace spillway::codec::sketch {

// Both sets must be of the same tensor and disjoint. The tensor has at most kMaxSupportLength
// values.
std::vector<std::uint8_t> encode_support(const Support& chosen, const Support& excluded);

// Decodes the set; `excluded` must be the one it was encoded with.
base::Result<Support> decode_support(base::ByteView bytes, const Support& excluded);

// The largest encoding for so many positions that are not excluded.
std::size_t encoded_support_limit(std::size_t positions);

inline constexpr std::uint64_t kMaxSupportLength = std::uint64_t{1} << 32;

}  // namespace spillway::codec::sketch
