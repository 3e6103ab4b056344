// SPDX-License-Identifier: Apache-2.0
//
// Properties of every reference codec.
#include "codec/reference/reference_codec.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace spillway::codec::reference
