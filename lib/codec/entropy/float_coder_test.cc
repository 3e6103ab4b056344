// SPDX-License-Identifier: Apache-2.0
#include "codec/entropy/float_coder.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "codec/sample_data.h"

namespace spillway::codec::entropy {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  for (std::size_t i = 0; i < values.size(); ++i) {
    base::store_le(bytes.data() + i * sizeof(float), std::bit_cast<std::uint32_t>(values[i]));
  }
  return bytes;
}

// The upper halves: bfloat16 numbers, rounded towards zero.
Bytes upper_halves(const std::vector<float>& values) {
  Bytes bytes(values.size() * 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    base::store_le(bytes.data() + 2 * i,
                   static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16));
  }
  return bytes;
}

Bytes noise(std::size_t count) {
  base::RandomSequence random(3);
  Bytes bytes(count);
  std::generate(bytes.begin(), bytes.end(),
                [&] { return static_cast<std::uint8_t>(random.next_word()); });
  return bytes;
}

// Empty if the values do not shrink to `room`.
std::optional<Bytes> encoded(const Bytes& values, FloatWidth width, std::size_t room,
                             const RansKernels& kernels = best_rans_kernels()) {
  Bytes code(room + 1, 0xA5);
  FloatEncoder encoder(kernels);
  const std::optional<std::size_t> bytes =
      encoder.encode(values, width, base::MutableByteView(code).first(room));
  EXPECT_EQ(code.back(), 0xA5);
  if (!bytes) {
    return std::nullopt;
  }
  code.resize(*bytes);
  return code;
}

// The length of the code, after the values came back from it.
std::size_t round_trip(const Bytes& values, FloatWidth width) {
  const std::optional<Bytes> code = encoded(values, width, 2 * values.size() + 100);
  EXPECT_TRUE(code);
  Bytes decoded(values.size(), 0x5A);
  FloatDecoder decoder;
  const base::Status status = decoder.decode(*code, width, decoded);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(decoded, values);
  return code->size();
}

TEST(FloatCoder, GaussianValuesLoseMostOfTheirExponents) {
  const std::vector<float> values = gaussian_values(200'000, 1);
  const auto count = static_cast<double>(values.size());
  const double wide =
      8.0 * static_cast<double>(round_trip(bytes_of(values), FloatWidth::kFour)) / count;
  EXPECT_GT(wide, 24.0);
  EXPECT_LT(wide, 26.8);
  const double narrow =
      8.0 * static_cast<double>(round_trip(upper_halves(values), FloatWidth::kTwo)) / count;
  EXPECT_LT(narrow, 10.8);
}

TEST(FloatCoder, EveryLengthComesBack) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{63}, std::size_t{4'001},
        kFloatBlockValues - 1, kFloatBlockValues, kFloatBlockValues + 1, 3 * kFloatBlockValues}) {
    const std::vector<float> values = gaussian_values(count, count);
    round_trip(bytes_of(values), FloatWidth::kFour);
    round_trip(upper_halves(values), FloatWidth::kTwo);
  }
}

TEST(FloatCoder, EveryBitPatternOfSixteenBitsComesBack) {
  Bytes values(2 << 16);
  for (std::uint32_t i = 0; i < 1U << 16; ++i) {
    base::store_le(values.data() + 2 * i, static_cast<std::uint16_t>(i));
  }
  round_trip(values, FloatWidth::kTwo);
}

TEST(FloatCoder, SpecialValuesKeepTheirBits) {
  std::vector<float> values = gaussian_values(50'000, 9);
  using Limits = std::numeric_limits<float>;
  const std::vector<std::uint32_t> patterns = {0x7FC0'0001,
                                               0xFFC1'2345,
                                               0x7F80'0001,  // quiet NaNs, a signalling one
                                               std::bit_cast<std::uint32_t>(Limits::infinity()),
                                               std::bit_cast<std::uint32_t>(-Limits::infinity()),
                                               0x8000'0000,
                                               0x0000'0001,
                                               0x807F'FFFF,  // negative zero, denormal numbers
                                               std::bit_cast<std::uint32_t>(Limits::max()),
                                               0xFFFF'FFFF};
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    std::memcpy(&values[77 + 1'000 * i], &patterns[i], sizeof(float));
  }
  const std::size_t bytes = round_trip(bytes_of(values), FloatWidth::kFour);
  EXPECT_LT(bytes, values.size() * sizeof(float) * 27 / 32);
}

// Gradients of a model under autocast: float32 tensors that hold bfloat16 numbers.
TEST(FloatCoder, LowerHalvesOfZerosTakeNothing) {
  std::vector<float> values = gaussian_values(kFloatBlockValues, 4);
  for (float& value : values) {
    value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xFFFF'0000);
  }
  const std::size_t wide = round_trip(bytes_of(values), FloatWidth::kFour);
  const std::size_t narrow = round_trip(upper_halves(values), FloatWidth::kTwo);
  EXPECT_LT(wide, narrow + 20);
}

TEST(FloatCoder, MostlyZeroTensorsTakeFewBits) {
  const std::vector<float> values = sparse_values(kFloatBlockValues, 20, 5);
  const std::size_t bytes = round_trip(bytes_of(values), FloatWidth::kFour);
  EXPECT_LT(bytes, values.size() * sizeof(float) / 8);
}

TEST(FloatCoder, ValuesThatDoNotShrinkHaveNoCode) {
  const Bytes values = noise(400'000);
  EXPECT_FALSE(encoded(values, FloatWidth::kFour, values.size()));
  EXPECT_FALSE(encoded(values, FloatWidth::kTwo, values.size()));
  const Bytes smooth = bytes_of(gaussian_values(100'000, 2));
  EXPECT_TRUE(encoded(smooth, FloatWidth::kFour, smooth.size()));
  EXPECT_FALSE(encoded(smooth, FloatWidth::kFour, smooth.size() / 2));
  EXPECT_FALSE(encoded(smooth, FloatWidth::kFour, 0));
}

TEST(FloatCoder, AllKernelsGiveTheSameBytes) {
  const Bytes values = bytes_of(lognormal_values(150'000, 8));
  const std::optional<Bytes> code =
      encoded(values, FloatWidth::kFour, values.size(), scalar_rans_kernels());
  ASSERT_TRUE(code);
  for (const RansKernels* kernels : available_rans_kernels()) {
    EXPECT_EQ(encoded(values, FloatWidth::kFour, values.size(), *kernels), code) << kernels->name;
    FloatDecoder decoder(*kernels);
    Bytes decoded(values.size());
    EXPECT_TRUE(decoder.decode(*code, FloatWidth::kFour, decoded).ok()) << kernels->name;
    EXPECT_EQ(decoded, values) << kernels->name;
  }
}

TEST(FloatCoder, CutCodeIsAnErrorAndFilledUpCodeIsNot) {
  const Bytes values = bytes_of(gaussian_values(10'000, 6));
  Bytes code = *encoded(values, FloatWidth::kFour, values.size());
  Bytes decoded(values.size());
  FloatDecoder decoder;
  for (const std::size_t length : {std::size_t{0}, std::size_t{3}, std::size_t{4}, std::size_t{500},
                                   code.size() / 2, code.size() - 1}) {
    EXPECT_EQ(decoder.decode(base::ByteView(code).first(length), FloatWidth::kFour, decoded).code(),
              base::StatusCode::kMalformed);
  }
  code.resize(code.size() + 127);
  EXPECT_TRUE(decoder.decode(code, FloatWidth::kFour, decoded).ok());
  EXPECT_EQ(decoded, values);
}

TEST(FloatCoder, DamagedCodeNeverLeavesItsBuffers) {
  const Bytes values = bytes_of(gaussian_values(40'000, 7));
  const Bytes code = *encoded(values, FloatWidth::kFour, values.size());
  base::RandomSequence random(1);
  FloatDecoder decoder;
  for (int round = 0; round < 200; ++round) {
    Bytes damaged = code;
    const std::size_t at = round % 2 == 0 ? random.next_below(400) : random.next_below(code.size());
    damaged[at] ^= static_cast<std::uint8_t>(1 + random.next_below(255));
    Bytes decoded(values.size() + 1, 0xA5);
    static_cast<void>(
        decoder
            .decode(damaged, FloatWidth::kFour, base::MutableByteView(decoded).first(values.size()))
            .ok());
    ASSERT_EQ(decoded.back(), 0xA5);
  }
}

}  // namespace
}  // namespace spillway::codec::entropy
