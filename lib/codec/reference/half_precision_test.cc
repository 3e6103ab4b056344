// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/half_precision.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace spillway::codec::reference {
namespace {

constexpr float kEndless = std::numeric_limits<float>::infinity();

struct Format {
  const char* name;
  std::uint16_t (*from_float)(float);
  float (*to_float)(std::uint16_t);
  std::uint16_t infinity;
};

const Format kFormats[] = {{"bf16", float_to_bf16, bf16_to_float, 0x7F80},
                           {"fp16", float_to_fp16, fp16_to_float, 0x7C00}};

float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

TEST(HalfPrecision, AllPatternsComeBack) {
  for (const Format& format : kFormats) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const float value = format.to_float(static_cast<std::uint16_t>(bits));
      ASSERT_EQ(format.from_float(value), bits) << format.name;
    }
  }
}

// Between each two neighbours of both signs. The midpoint is a float, so rounding can be tested
// exactly there and one float to either side.
TEST(HalfPrecision, MidpointsGoToEvenAndTheRestToTheNearest) {
  for (const Format& format : kFormats) {
    for (std::uint16_t low = 0; low + 1 < format.infinity; ++low) {
      const auto high = static_cast<std::uint16_t>(low + 1);
      const std::uint16_t even = low % 2 == 0 ? low : high;
      const float middle = static_cast<float>(
          (static_cast<double>(format.to_float(low)) + format.to_float(high)) / 2);
      ASSERT_EQ(format.from_float(middle), even) << format.name;
      ASSERT_EQ(format.from_float(std::nextafter(middle, 0.0F)), low) << format.name;
      ASSERT_EQ(format.from_float(std::nextafter(middle, kEndless)), high) << format.name;
      ASSERT_EQ(format.from_float(-middle), even | 0x8000) << format.name;
    }
  }
}

TEST(HalfPrecision, KnownValues) {
  EXPECT_EQ(fp16_to_float(0x3C00), 1.0F);
  EXPECT_EQ(fp16_to_float(0xC000), -2.0F);
  EXPECT_EQ(fp16_to_float(0x7BFF), 65504.0F);
  EXPECT_EQ(fp16_to_float(0x0400), 0x1p-14F);
  EXPECT_EQ(fp16_to_float(0x03FF), 0x1p-14F - 0x1p-24F);
  EXPECT_EQ(fp16_to_float(0x0001), 0x1p-24F);
  EXPECT_EQ(bf16_to_float(0x3F80), 1.0F);
  EXPECT_EQ(bf16_to_float(0xC049), -3.140625F);
}

TEST(HalfPrecision, BeyondTheRangeIsInfinity) {
  EXPECT_EQ(float_to_fp16(65519.996F), 0x7BFF);
  EXPECT_EQ(float_to_fp16(65520.0F), 0x7C00);  // the midpoint to 65536, which is even
  EXPECT_EQ(float_to_fp16(-1e9F), 0xFC00);
  EXPECT_EQ(float_to_fp16(kEndless), 0x7C00);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(float_to_bf16(float_of(0x7F7F7FFF)), 0x7F7F);
  EXPECT_EQ(float_to_bf16(-kEndless), 0xFF80);
}

TEST(HalfPrecision, SmallValuesBecomeDenormalsOrSignedZeros) {
  EXPECT_EQ(float_to_fp16(0x1p-24F), 0x0001);
  EXPECT_EQ(float_to_fp16(0x1p-25F), 0x0000);  // a tie, to even
  EXPECT_EQ(float_to_fp16(std::nextafter(0x1p-25F, 1.0F)), 0x0001);
  EXPECT_EQ(float_to_fp16(0x3p-25F), 0x0002);  // a tie, to even
  EXPECT_EQ(float_to_fp16(-1e-30F), 0x8000);
  EXPECT_EQ(float_to_fp16(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(float_to_bf16(float_of(0x00010000)), 0x0001);  // bf16 has the float's denormals
  EXPECT_EQ(float_to_bf16(-0.0F), 0x8000);
}

TEST(HalfPrecision, NansStayNansWhateverTheirPayload) {
  for (const Format& format : kFormats) {
    for (std::uint32_t payload = 1; payload < (1U << 23); payload = payload * 3 + 1) {
      for (const std::uint32_t sign : {0U, 0x80000000U}) {
        const float nan = float_of(sign | 0x7F800000U | payload);
        const std::uint16_t bits = format.from_float(nan);
        ASSERT_GT(bits & 0x7FFF, format.infinity) << format.name << " " << payload;
        ASSERT_TRUE(std::isnan(format.to_float(bits)));
        ASSERT_EQ(std::signbit(format.to_float(bits)), sign != 0);
      }
    }
  }
}

}  // namespace
}  // namespace spillway::codec::reference
