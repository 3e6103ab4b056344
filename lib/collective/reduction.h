// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of collectives: folds elements of several buffers into one.
//
// Results are the same bits on every machine, whatever its vectors are:
// - Sources are folded strictly in the order given, ((s0 + s1) + s2) + ...; nothing is reassociated
//   or fused. Vectors run across elements, never across sources.
// - float16 and bfloat16 are summed (and multiplied) as floats over all sources and rounded once,
//   at the end, to nearest, ties to even. Sums beyond the range become infinities.
// - An element is NaN where any source is (min and max too), where infinities cancel or meet a zero
//   in a product. It is then always the positive quiet NaN without a payload, because processors
//   differ in which NaN an addition makes. That holds for a single source as well.
// - min and max keep the earlier of two equal elements, which tells +0 from -0.
// - Integer sums and products wrap around (two's complement). Integer averages truncate towards
//   zero, floating ones are divided and not multiplied with a reciprocal.
//
// The thread's floating-point mode must be the usual one: rounding to nearest, denormals kept.
//
// Buffers need no alignment. `target` may be exactly one of the sources; otherwise nothing
// overlaps. Pure functions: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/operation.h"

namespace spillway::collective {

inline constexpr std::size_t kMaxSources = 4096;
inline constexpr std::size_t kMaxAverageOver = std::size_t{1} << 24;  // up to here exact as a float

// target[i] = sources[0][i] folded with sources[1][i], sources[2][i], ... for i < count elements.
// `average_over`, for kAverage only, divides the folded sum. Zero leaves the sum as it is, for
// partial results that go on to the next rank. One to kMaxSources sources.
void reduce(DataType type, ReduceOp op, std::span<const std::uint8_t* const> sources,
            std::size_t count, std::uint8_t* target, std::size_t average_over);

// Convert elements of a floating type (see is_floating) to floats and back. float64 is rounded to a
// float to nearest, ties to even; floats are rounded likewise to 16 bits. float32 is copied as it
// is. In the other types a NaN stays a NaN, and one that was rounded is the quiet NaN above. `from`
// and `to` do not overlap.
void convert_to_float(DataType type, const std::uint8_t* from, std::size_t count, float* to);
void convert_from_float(DataType type, const float* from, std::size_t count, std::uint8_t* to);

}  // namespace spillway::collective
