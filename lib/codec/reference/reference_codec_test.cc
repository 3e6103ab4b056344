// SPDX-License-Identifier: Apache-2.0
//
// Properties of every reference codec.
#include "codec/reference/reference_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "codec/sample_data.h"

namespace spillway::codec::reference {
namespace {

const std::size_t kLengths[] = {0, 1, 2, 99, 100, 101, 255, 256, 257, 1000, 32767, 32768, 33000};

TEST(ReferenceCodecs, NamesAreDistinctAndLeadBackToTheCodec) {
  std::set<std::string> names;
  for (const auto& codec : all_reference_codecs()) {
    names.emplace(codec->name());
    const auto made = make_reference_codec(codec->name());
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_EQ(made.value()->name(), codec->name());
  }
  const std::set<std::string> expected = {"eden-1", "eden-2", "eden-3", "eden-4",
                                          "eden-5", "eden-6", "eden-7", "eden-8",
                                          "bf16",   "fp16",   "int8",   "topk-1"};
  EXPECT_EQ(names, expected);
}

TEST(ReferenceCodecs, DriveIsOneBitEden) {
  const auto drive = make_reference_codec("drive");
  ASSERT_TRUE(drive.ok());
  EXPECT_EQ(drive.value()->name(), "eden-1");
}

TEST(ReferenceCodecs, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  const auto made = make_reference_codec("eden-9");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), base::StatusCode::kInvalidArgument);
  for (const char* name : {"eden-9", "drive", "eden-1", "eden-8", "bf16", "int8", "topk-1"}) {
    EXPECT_NE(made.status().message().find(name), std::string::npos) << name;
  }
}

TEST(ReferenceCodecs, TheSizeOnTheWireIsWhatTheySay) {
  for (const auto& codec : all_reference_codecs()) {
    for (const std::size_t length : kLengths) {
      const auto bytes = codec->encode(gaussian_values(length, 1), 2);
      ASSERT_EQ(bytes.size(), codec->encoded_bytes(length)) << codec->name() << " " << length;
      const double bits = length == 0 ? 0.0 : 8.0 * static_cast<double>(bytes.size()) / length;
      ASSERT_EQ(codec->bits_per_coordinate(length), bits) << codec->name() << " " << length;
    }
  }
}

TEST(ReferenceCodecs, EncodingIsAFunctionOfTensorAndSeed) {
  const std::vector<float> tensor = gaussian_values(1000, 1);
  for (const auto& codec : all_reference_codecs()) {
    EXPECT_EQ(codec->encode(tensor, 5), codec->encode(tensor, 5)) << codec->name();
  }
}

TEST(ReferenceCodecs, EveryLengthDecodesToItsOwnScale) {
  for (const auto& codec : all_reference_codecs()) {
    for (const std::size_t length : kLengths) {
      const std::vector<float> tensor = gaussian_values(length, 3);
      std::vector<float> out(length, std::numeric_limits<float>::quiet_NaN());
      const base::Status status = codec->decode(codec->encode(tensor, 4), length, 4, out);
      ASSERT_TRUE(status.ok()) << status.to_string();
      for (const float value : out) {
        ASSERT_TRUE(std::isfinite(value)) << codec->name() << " " << length;
      }
      ASSERT_LE(energy(out), 4.0 * energy(tensor)) << codec->name() << " " << length;
    }
  }
}

TEST(ReferenceCodecs, ZerosComeBackAsZeros) {
  for (const auto& codec : all_reference_codecs()) {
    for (const std::size_t length : {1U, 300U, 33000U}) {
      const std::vector<float> zeros(length, 0.0F);
      std::vector<float> out(length, 1.0F);
      ASSERT_TRUE(codec->decode(codec->encode(zeros, 4), length, 4, out).ok());
      ASSERT_EQ(out, zeros) << codec->name();
    }
  }
}

TEST(ReferenceCodecs, ANanIsNeverHidden) {
  for (const auto& codec : all_reference_codecs()) {
    std::vector<float> tensor = gaussian_values(400, 3);
    tensor[77] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> out(tensor.size());
    ASSERT_TRUE(codec->decode(codec->encode(tensor, 4), tensor.size(), 4, out).ok());
    EXPECT_TRUE(std::isnan(out[77])) << codec->name();
  }
}

TEST(ReferenceCodecs, DenormalsDoNotBecomeLarge) {
  for (const auto& codec : all_reference_codecs()) {
    std::vector<float> tensor = gaussian_values(400, 3);
    for (float& value : tensor) {
      value *= 1e-41F;
    }
    std::vector<float> out(tensor.size(), 1.0F);
    ASSERT_TRUE(codec->decode(codec->encode(tensor, 4), tensor.size(), 4, out).ok());
    for (const float value : out) {
      ASSERT_LT(std::fabs(value), 1e-39F) << codec->name();
    }
  }
}

TEST(ReferenceCodecs, AnyOtherLengthIsMalformedAndLeavesTheOutputAlone) {
  const std::vector<float> tensor = gaussian_values(300, 1);
  for (const auto& codec : all_reference_codecs()) {
    const std::vector<std::uint8_t> bytes = codec->encode(tensor, 1);
    std::vector<float> out(tensor.size(), 7.0F);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      const base::ByteView cut = base::ByteView(bytes).first(length);
      ASSERT_EQ(codec->decode(cut, tensor.size(), 1, out).code(), base::StatusCode::kMalformed);
    }
    std::vector<std::uint8_t> longer = bytes;
    longer.push_back(0);
    EXPECT_EQ(codec->decode(longer, tensor.size(), 1, out).code(), base::StatusCode::kMalformed);
    EXPECT_EQ(out, std::vector<float>(tensor.size(), 7.0F)) << codec->name();
  }
}

TEST(ReferenceCodecs, AnOutputOfAnotherLengthIsAnError) {
  const std::vector<float> tensor = gaussian_values(300, 1);
  std::vector<float> out(299);
  for (const auto& codec : all_reference_codecs()) {
    const std::vector<std::uint8_t> bytes = codec->encode(tensor, 1);
    EXPECT_EQ(codec->decode(bytes, 300, 1, out).code(), base::StatusCode::kInvalidArgument);
    EXPECT_EQ(codec->decode(bytes, 299, 1, out).ok(), codec->encoded_bytes(299) == bytes.size());
  }
}

TEST(ReferenceCodecs, RandomBytesGiveAStatusOrNumbersButNoCrash) {
  base::RandomSequence random(99);
  for (const auto& codec : all_reference_codecs()) {
    for (int round = 0; round < 50; ++round) {
      const std::size_t count = random.next_below(1200);
      std::vector<std::uint8_t> bytes(codec->encoded_bytes(count));
      for (std::uint8_t& byte : bytes) {
        byte = static_cast<std::uint8_t>(random.next_word());
      }
      std::vector<float> out(count);
      const base::Status status = codec->decode(bytes, count, 1, out);
      ASSERT_TRUE(status.ok() || status.code() == base::StatusCode::kMalformed);
    }
  }
}

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

std::vector<float> round_trip(std::span<const float> tensor, std::uint64_t seed) {
  const Int8BlockCodec codec;
  std::vector<float> estimate(tensor.size(), -1.0F);
  const base::Status status =
      codec.decode(codec.encode(tensor, seed), tensor.size(), seed, estimate);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return estimate;
}

float largest_magnitude(std::span<const float> values) {
  float largest = 0.0F;
  for (const float value : values) {
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

// Every coordinate is off by less than one step of its own block.
void expect_within_a_step(std::span<const float> tensor) {
  const std::vector<float> estimate = round_trip(tensor, 5);
  for (std::size_t first = 0; first < tensor.size(); first += kInt8Block) {
    const auto block = tensor.subspan(first, std::min(kInt8Block, tensor.size() - first));
    const double step = std::max<double>(largest_magnitude(block) / 127.0 * 1.000001,
                                         std::numeric_limits<float>::denorm_min());
    for (std::size_t i = 0; i < block.size(); ++i) {
      ASSERT_LT(std::fabs(static_cast<double>(estimate[first + i]) - block[i]), step * 1.000001);
    }
  }
}

TEST(Int8Blocks, TheErrorIsBelowOneStepOfTheBlock) {
  expect_within_a_step(gaussian_values(5000, 1));
  expect_within_a_step(lognormal_values(5001, 2));
}

TEST(Int8Blocks, TheExtremesOfFloatKeepTheBound) {
  using Limits = std::numeric_limits<float>;
  expect_within_a_step(std::vector<float>{Limits::max(), -Limits::max(), 1.0F, 0.0F});
  expect_within_a_step(std::vector<float>{Limits::min(), -Limits::min() / 3});
  for (int steps = 1; steps < 1000; ++steps) {
    const float largest = static_cast<float>(steps) * Limits::denorm_min();
    expect_within_a_step(std::vector<float>{largest, -largest / 2, Limits::denorm_min()});
  }
}

TEST(Int8Blocks, TheMeanOverSeedsIsTheTensor) {
  constexpr std::uint64_t kSeeds = 4000;
  const std::vector<float> tensor = gaussian_values(256, 3);
  std::vector<double> sums(tensor.size(), 0.0);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::vector<float> estimate = round_trip(tensor, seed);
    std::transform(sums.begin(), sums.end(), estimate.begin(), sums.begin(), std::plus<>());
  }
  // One estimate deviates by at most half a step; allow five deviations of the mean.
  const double step = largest_magnitude(tensor) / 127.0;
  const double bound = 5.0 * 0.5 * step / std::sqrt(static_cast<double>(kSeeds));
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    ASSERT_NEAR(sums[i] / kSeeds, tensor[i], bound);
  }
}

TEST(Int8Blocks, TheLargestValueOfABlockIsKept) {
  const std::vector<float> estimate = round_trip(std::vector<float>{-3.0F, 1.0F, 0.5F}, 1);
  EXPECT_NEAR(estimate[0], -3.0F, 1e-6F);
}

TEST(Int8Blocks, AFullBlockTakes8Point125BitsPerCoordinate) {
  const Int8BlockCodec codec;
  EXPECT_EQ(codec.bits_per_coordinate(256), 8.125);
  EXPECT_EQ(codec.encoded_bytes(257), 257U + 8U);
}

TEST(Int8Blocks, ANonFiniteValueTurnsItsBlockIntoNanAndNoOther) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> tensor(600, 1.0F);
    tensor[300] = bad;
    const std::vector<float> estimate = round_trip(tensor, 2);
    for (std::size_t i = 0; i < tensor.size(); ++i) {
      ASSERT_EQ(std::isnan(estimate[i]), i / kInt8Block == 1) << i;
    }
  }
}

TEST(Int8Blocks, CodesAndScalesThatAreNeverSentAreMalformed) {
  const Int8BlockCodec codec;
  const std::vector<float> tensor(300, 1.0F);
  const std::vector<std::uint8_t> good = codec.encode(tensor, 1);
  std::vector<float> out(tensor.size(), 7.0F);

  std::vector<std::uint8_t> bad_code = good;
  bad_code.back() = 0x80;
  EXPECT_EQ(codec.decode(bad_code, out.size(), 1, out).code(), base::StatusCode::kMalformed);

  for (const float scale : {-1.0F, std::numeric_limits<float>::infinity()}) {
    std::vector<std::uint8_t> bad_scale = good;
    base::store_le(bad_scale.data(), scale);
    EXPECT_EQ(codec.decode(bad_scale, out.size(), 1, out).code(), base::StatusCode::kMalformed);
  }
  EXPECT_EQ(out, std::vector<float>(tensor.size(), 7.0F));  // untouched on error
}

std::vector<float> round_trip(std::span<const float> tensor) {
  const TopKCodec codec;
  std::vector<float> estimate(tensor.size(), -1.0F);
  const base::Status status = codec.decode(codec.encode(tensor, 0), tensor.size(), 0, estimate);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return estimate;
}

TEST(TopK, TheLargestPercentArrivesExactlyAndTheRestIsZero) {
  const std::vector<float> tensor = gaussian_values(10'000, 1);
  const std::vector<float> estimate = round_trip(tensor);
  float smallest_kept = std::numeric_limits<float>::infinity();
  float largest_dropped = 0.0F;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    if (estimate[i] != 0.0F) {
      ASSERT_EQ(estimate[i], tensor[i]);
      smallest_kept = std::min(smallest_kept, std::fabs(tensor[i]));
      ++kept;
    } else {
      largest_dropped = std::max(largest_dropped, std::fabs(tensor[i]));
    }
  }
  EXPECT_EQ(kept, 100U);
  EXPECT_GE(smallest_kept, largest_dropped);
}

TEST(TopK, TheCountIsRoundedUp) {
  const TopKCodec codec;
  EXPECT_EQ(codec.encoded_bytes(0), 0U);
  EXPECT_EQ(codec.encoded_bytes(1), 8U);
  EXPECT_EQ(codec.encoded_bytes(100), 8U);
  EXPECT_EQ(codec.encoded_bytes(101), 16U);
  EXPECT_EQ(codec.bits_per_coordinate(10'000), 0.64);
}

TEST(TopK, TiesGoToTheLowerIndex) {
  std::vector<float> tensor(300, 1.0F);
  tensor[1] = -1.0F;
  tensor[200] = 2.0F;
  const std::vector<float> estimate = round_trip(tensor);
  std::vector<float> expected(300, 0.0F);
  expected[0] = 1.0F;
  expected[1] = -1.0F;
  expected[200] = 2.0F;
  EXPECT_EQ(estimate, expected);
}

TEST(TopK, NonFiniteValuesComeFirst) {
  std::vector<float> tensor(300, std::numeric_limits<float>::max());
  tensor[50] = -std::numeric_limits<float>::infinity();
  tensor[299] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> estimate = round_trip(tensor);
  EXPECT_EQ(estimate[50], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(estimate[299]));
  EXPECT_EQ(estimate[0], std::numeric_limits<float>::max());
  EXPECT_EQ(estimate[1], 0.0F);
}

TEST(TopK, IndicesOutOfRangeOrOutOfOrderAreMalformed) {
  const TopKCodec codec;
  const std::vector<float> tensor(300, 1.0F);
  std::vector<float> out(tensor.size(), 7.0F);
  for (const std::uint32_t index : {300U, 0xFFFFFFFFU, 0U /* sent before it */}) {
    std::vector<std::uint8_t> bytes = codec.encode(tensor, 0);
    base::store_le(bytes.data() + 8, index);
    EXPECT_EQ(codec.decode(bytes, out.size(), 0, out).code(), base::StatusCode::kMalformed);
  }
  EXPECT_EQ(out, std::vector<float>(tensor.size(), 7.0F));  // untouched on error
}

}  // namespace

}  // namespace spillway::codec::reference
