// SPDX-License-Identifier: Apache-2.0
#include "collective/half_float.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "codec/reference/half_precision.h"

namespace spillway::collective {
namespace {

using codec::reference::bf16_to_float;
using codec::reference::float_to_bf16;
using codec::reference::float_to_fp16;
using codec::reference::fp16_to_float;

constexpr std::uint32_t kHalves = 65536;
constexpr float kInfinite = std::numeric_limits<float>::infinity();

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

// The processor's own conversion, and the portable one.
struct Float16Way {
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
};

class Float16 : public testing::TestWithParam<Float16Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, Float16,
                         testing::Values(Float16Way{float16_to_float, float_to_float16},
                                         Float16Way{half_float::float16_to_float_portably,
                                                    half_float::float_to_float16_portably}),
                         [](const auto& tested) {
                           return tested.index == 0 ? "chosen" : "portable";
                         });

TEST_P(Float16, EveryValueIsWidenedExactlyAndComesBack) {
  for (std::uint32_t half = 0; half < kHalves; ++half) {
    const auto stored = static_cast<std::uint16_t>(half);
    const float wide = GetParam().widen(stored);
    if ((half & 0x7FFF) > kFloat16Infinity) {
      ASSERT_TRUE(std::isnan(wide)) << half;
      ASSERT_EQ(GetParam().narrow(wide), kFloat16NaN) << half;
    } else {
      ASSERT_EQ(bits_of(wide), bits_of(fp16_to_float(stored))) << half;
      ASSERT_EQ(GetParam().narrow(wide), stored) << half;
    }
  }
}

// Between two neighbours the middle goes to the even one, anything else to the nearer. Above the
// largest value the next one would be 65536; infinity stands in for it.
TEST_P(Float16, TiesGoToTheEvenNeighbour) {
  for (std::uint16_t low = 0; low < kFloat16Infinity; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const float below = fp16_to_float(low);
    const float above = high == kFloat16Infinity ? 65536.0F : fp16_to_float(high);
    const float middle = below + (above - below) / 2;
    const std::uint16_t even = low % 2 == 0 ? low : high;
    for (const std::uint16_t sign : {0, 0x8000}) {
      const float signed_one = sign == 0 ? 1.0F : -1.0F;
      ASSERT_EQ(GetParam().narrow(signed_one * middle), sign | even) << low;
      ASSERT_EQ(GetParam().narrow(signed_one * std::nextafter(middle, 0.0F)), sign | low) << low;
      ASSERT_EQ(GetParam().narrow(signed_one * std::nextafter(middle, kInfinite)), sign | high)
          << low;
    }
  }
}

TEST_P(Float16, AnyFloatIsRoundedAsTheReferenceDoes) {
  constexpr std::uint64_t kStride = 4093;  // a prime: all parts of a float take many values
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += kStride) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const std::uint16_t expected = std::isnan(value) ? kFloat16NaN : float_to_fp16(value);
    ASSERT_EQ(GetParam().narrow(value), expected) << bits;
  }
}

TEST_P(Float16, TheEndsOfTheRange) {
  EXPECT_EQ(GetParam().narrow(65504.0F), 0x7BFF);
  EXPECT_EQ(GetParam().narrow(std::numeric_limits<float>::max()), kFloat16Infinity);
  EXPECT_EQ(GetParam().narrow(-kInfinite), 0x8000 | kFloat16Infinity);
  EXPECT_EQ(GetParam().narrow(-0.0F), 0x8000);
  EXPECT_EQ(GetParam().narrow(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(GetParam().narrow(-std::numeric_limits<float>::quiet_NaN()), kFloat16NaN);
}

TEST(Bfloat16, EveryValueComesBack) {
  for (std::uint32_t half = 0; half < kHalves; ++half) {
    const auto stored = static_cast<std::uint16_t>(half);
    const float wide = bfloat16_to_float(stored);
    ASSERT_EQ(bits_of(wide), bits_of(bf16_to_float(stored)));
    ASSERT_EQ(float_to_bfloat16(wide), std::isnan(wide) ? kBfloat16NaN : stored) << half;
  }
}

TEST(Bfloat16, TiesGoToTheEvenNeighbour) {
  for (std::uint32_t low = 0; low < 0x7F80; ++low) {
    const std::uint32_t middle = low << 16 | 0x8000;
    const std::uint32_t even = low + low % 2;
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(middle)), even) << low;
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(middle - 1)), low) << low;
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(middle + 1)), low + 1) << low;
  }
}

TEST(Bfloat16, AnyFloatIsRoundedAsTheReferenceDoes) {
  constexpr std::uint64_t kStride = 4093;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += kStride) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const std::uint16_t expected = std::isnan(value) ? kBfloat16NaN : float_to_bf16(value);
    ASSERT_EQ(float_to_bfloat16(value), expected) << bits;
  }
}

}  // namespace
}  // namespace spillway::collective
