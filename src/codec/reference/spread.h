// SPDX-License-Identifier: Apache-2.0
//
// What the unrotated one-bit heads share: the spread of a tensor that travels as metadata, and the
// 31-bit tail of SQ and SD. Their head is not the sign, so the tail alone must restore the value
// and has no room for its last mantissa bit: tails truncate, which moves a number towards zero by
// at most one unit in the last place and takes the smallest denormal to zero.
//
// Pure functions: any thread. Computed in double, so no finite tensor overflows.
#pragma once

#include <cstdint>
#include <span>

namespace spillway::codec::reference {

// The standard deviation about the mean; 0 for an empty or constant tensor, NaN for one with a
// value that is not finite.
float standard_deviation(std::span<const float> tensor);

// The clipping limit of SQ and SD: 2.5 standard deviations (TernGrad's rule, Wen et al., NIPS'17),
// at most the largest float.
float clipping_limit(std::span<const float> tensor);

// The upper 31 bits of a float and back. A NaN stays a NaN.
std::uint32_t shortened(float value);
float lengthened(std::uint32_t tail);

}  // namespace spillway::codec::reference
