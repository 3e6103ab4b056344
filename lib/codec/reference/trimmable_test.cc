// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/trimmable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "codec/rotation.h"
#include "codec/sample_data.h"

namespace spillway::codec::reference {
namespace {

using Fates = std::vector<PacketFate>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::unique_ptr<TrimmableEncoding> make(std::string_view name,
                                        std::size_t per_packet = kDefaultCoordinatesPerPacket) {
  auto made = make_trimmable_encoding(name, per_packet);
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

// Exactly round(fraction * packets) random packets get `fate`; the others arrive whole.
Fates random_fates(std::size_t packets, double fraction, PacketFate fate, std::uint64_t seed) {
  Fates fates(packets, PacketFate::kWhole);
  const auto chosen =
      static_cast<std::size_t>(std::lround(fraction * static_cast<double>(packets)));
  std::fill_n(fates.begin(), chosen, fate);
  base::RandomSequence random(seed);
  for (std::size_t i = packets; i > 1; --i) {
    std::swap(fates[i - 1], fates[random.next_below(i)]);
  }
  return fates;
}

// Encodes, actually trims the packets, and decodes.
std::vector<float> deliver(const TrimmableEncoding& encoding, std::span<const float> tensor,
                           std::uint64_t seed, const Fates& fates) {
  TrimmableMessage message = encoding.encode(tensor, seed);
  base::Status status = encoding.damage(message, fates, tensor.size());
  EXPECT_TRUE(status.ok()) << status.to_string();
  std::vector<float> out(tensor.size(), -99.0F);
  status = encoding.decode(message, fates, seed, out);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return out;
}

std::vector<float> deliver_all(const TrimmableEncoding& encoding, std::span<const float> tensor,
                               std::uint64_t seed, PacketFate fate) {
  return deliver(encoding, tensor, seed, Fates(encoding.packet_count(tensor.size()), fate));
}

std::vector<float> mean_trimmed(const TrimmableEncoding& encoding, std::span<const float> tensor,
                                std::uint64_t seeds) {
  std::vector<double> sums(tensor.size(), 0.0);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const auto estimate = deliver_all(encoding, tensor, seed, PacketFate::kTrimmed);
    std::transform(sums.begin(), sums.end(), estimate.begin(), sums.begin(), std::plus<>());
  }
  std::vector<float> means(tensor.size());
  std::transform(sums.begin(), sums.end(), means.begin(),
                 [seeds](double sum) { return static_cast<float>(sum / seeds); });
  return means;
}

TEST(Trimmable, TheFourEncodingsOfThePaperAreThere) {
  std::vector<std::string> names;
  for (const auto& encoding : all_trimmable_encodings()) {
    names.emplace_back(encoding->name());
    EXPECT_EQ(encoding->coordinates_per_packet(), 360U);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"sign-magnitude", "sq", "sd", "rht"}));
}

TEST(Trimmable, UnknownNamesAndPacketSizesAreErrors) {
  const auto unknown = make_trimmable_encoding("huffman");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("sign-magnitude, sq, sd, rht"), std::string::npos);
  EXPECT_FALSE(make_trimmable_encoding("sq", 0).ok());
  EXPECT_FALSE(make_trimmable_encoding("sq", kMaxCoordinatesPerPacket + 1).ok());
}

TEST(Trimmable, APacketIsHeadsThenTailsAndATrimmedOneOnlyHeads) {
  EXPECT_EQ(head_bytes(360), 45U);
  EXPECT_EQ(packet_bytes(360), 45U + 1395U);
  const std::vector<float> tensor = gaussian_values(1000, 1);
  for (const auto& encoding : all_trimmable_encodings()) {
    TrimmableMessage message = encoding->encode(tensor, 1);
    ASSERT_EQ(message.packets.size(), 3U) << encoding->name();
    EXPECT_EQ(message.packets[0].size(), 1440U);
    const Fates fates = {PacketFate::kTrimmed, PacketFate::kLost, PacketFate::kWhole};
    ASSERT_TRUE(encoding->damage(message, fates, tensor.size()).ok());
    EXPECT_EQ(message.packets[0].size(), 45U);
    EXPECT_EQ(message.packets[1].size(), 0U);
    EXPECT_EQ(message.packets[2].size(), packet_bytes(encoding->name() == "rht" ? 304 : 280));
  }
}

TEST(Trimmable, WholePacketsOfSignMagnitudeAreExactToTheBit) {
  std::vector<float> tensor = gaussian_values(1000, 1);
  tensor[3] = -0.0F;
  tensor[4] = kNan;
  tensor[5] = -kInfinity;
  tensor[6] = std::numeric_limits<float>::denorm_min();
  tensor[7] = std::numeric_limits<float>::max();
  const auto out = deliver_all(*make("sign-magnitude"), tensor, 1, PacketFate::kWhole);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(tensor[i]));
  }
}

TEST(Trimmable, WholePacketsOfSqAndSdLoseTheLastMantissaBit) {
  std::vector<float> tensor = gaussian_values(1000, 1);
  tensor[3] = -0.0F;
  tensor[5] = -kInfinity;
  tensor[6] = std::numeric_limits<float>::denorm_min();  // becomes zero
  tensor[7] = std::numeric_limits<float>::max();
  for (const char* name : {"sq", "sd"}) {
    const auto out = deliver_all(*make(name), tensor, 1, PacketFate::kWhole);
    for (std::size_t i = 0; i < tensor.size(); ++i) {
      const std::uint32_t kept = std::bit_cast<std::uint32_t>(tensor[i]) & ~1U;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]), kept) << name;
    }
  }
}

TEST(Trimmable, ANanWhosePayloadIsTheLastBitStaysANan) {
  const std::vector<float> tensor = {1.0F, std::bit_cast<float>(0x7F800001U), -1.0F};
  for (const char* name : {"sign-magnitude", "sq", "sd"}) {
    const auto out = deliver_all(*make(name), tensor, 1, PacketFate::kWhole);
    EXPECT_EQ(out[0], 1.0F) << name;
    EXPECT_TRUE(std::isnan(out[1])) << name;
  }
}

TEST(Trimmable, WholePacketsOfRhtAreExactUpToRounding) {
  for (const std::size_t length : {1U, 1000U, 32768U, 70000U}) {
    const std::vector<float> tensor = lognormal_values(length, 2);
    const auto out = deliver_all(*make("rht"), tensor, 3, PacketFate::kWhole);
    EXPECT_LT(nmse(out, tensor), 1e-12) << length;
  }
}

TEST(Trimmable, LostPacketsAreZeros) {
  const std::vector<float> tensor = gaussian_values(40000, 1);
  for (const auto& encoding : all_trimmable_encodings()) {
    EXPECT_EQ(deliver_all(*encoding, tensor, 1, PacketFate::kLost), std::vector<float>(40000, 0.0F))
        << encoding->name();
  }
}

TEST(Trimmable, FatesApplyPacketByPacket) {
  const std::vector<float> tensor = gaussian_values(30, 1);
  for (const char* name : {"sign-magnitude", "sq", "sd"}) {
    const auto encoding = make(name, 10);
    const auto whole = deliver_all(*encoding, tensor, 1, PacketFate::kWhole);
    const auto trimmed = deliver_all(*encoding, tensor, 1, PacketFate::kTrimmed);
    const auto mixed = deliver(*encoding, tensor, 1,
                               {PacketFate::kTrimmed, PacketFate::kLost, PacketFate::kWhole});
    for (std::size_t i = 0; i < 30; ++i) {
      const float expected = i < 10 ? trimmed[i] : i < 20 ? 0.0F : whole[i];
      ASSERT_EQ(mixed[i], expected) << name << " " << i;
    }
  }
}

TEST(Trimmable, ErrorOfTrimmedGaussiansIsThatOfTheHandbook) {
  const std::vector<float> tensor = gaussian_values(24 * kMaxRowLength, 1);
  const std::vector<std::pair<const char*, double>> known = {
      {"sign-magnitude", 0.404}, {"sq", 5.28}, {"sd", 2.08}, {"rht", 0.570}};
  for (const auto& [name, expected] : known) {
    const auto out = deliver_all(*make(name), tensor, 2, PacketFate::kTrimmed);
    EXPECT_NEAR(nmse(out, tensor) / expected, 1.0, 0.05) << name;
  }
}

TEST(Trimmable, ErrorOfRhtIsProportionalToTheFractionTrimmed) {
  const std::vector<float> gaussian = gaussian_values(24 * kMaxRowLength, 1);
  const std::vector<float> heavy = lognormal_values(24 * kMaxRowLength, 1);
  const auto encoding = make("rht");
  for (const double fraction : {0.1, 0.5, 1.0}) {
    const Fates fates =
        random_fates(encoding->packet_count(gaussian.size()), fraction, PacketFate::kTrimmed, 3);
    const double expected = 0.571 * fraction;
    EXPECT_NEAR(nmse(deliver(*encoding, gaussian, 4, fates), gaussian) / expected, 1.0, 0.05);
    EXPECT_NEAR(nmse(deliver(*encoding, heavy, 4, fates), heavy) / expected, 1.0, 0.10);
  }
}

TEST(Trimmable, LosingAFractionOfRhtPacketsCostsThatFractionOfTheEnergy) {
  const std::vector<float> tensor = gaussian_values(16 * kMaxRowLength, 1);
  const auto encoding = make("rht");
  const Fates fates =
      random_fates(encoding->packet_count(tensor.size()), 0.2, PacketFate::kLost, 3);
  EXPECT_NEAR(nmse(deliver(*encoding, tensor, 4, fates), tensor), 0.2, 0.01);
}

TEST(Trimmable, TrimmedSqSdAndRhtAreUnbiasedOverSeeds) {
  constexpr std::uint64_t kSeeds = 4000;
  std::vector<float> tensor = gaussian_values(256, 3);
  for (float& value : tensor) {
    value = std::clamp(value, -2.0F, 2.0F);  // within the clip of sq and sd
  }
  // For unbiased estimates the error of the mean is that of one, divided by kSeeds.
  EXPECT_LT(nmse(mean_trimmed(*make("sq"), tensor, kSeeds), tensor), 1.5 * 5.7 / kSeeds);
  EXPECT_LT(nmse(mean_trimmed(*make("sd"), tensor, kSeeds), tensor), 1.5 * 2.1 / kSeeds);
  EXPECT_LT(nmse(mean_trimmed(*make("rht"), tensor, kSeeds), tensor), 3.0 * 0.6 / kSeeds);
  // The error of the sign alone does not fall.
  EXPECT_GT(nmse(mean_trimmed(*make("sign-magnitude"), tensor, 3), tensor), 0.3);
}

TEST(Trimmable, SqAndSdClipWhatLiesBeyondTheirLimit) {
  std::vector<float> tensor = gaussian_values(10000, 1);
  tensor[17] = 1000.0F;
  tensor[18] = -1000.0F;
  for (const char* name : {"sq", "sd"}) {
    const auto encoding = make(name);
    const float limit = encoding->encode(tensor, 1).metadata[0];
    const auto out = deliver_all(*encoding, tensor, 1, PacketFate::kTrimmed);
    EXPECT_GE(out[17], 0.0F) << name;
    EXPECT_LE(out[18], 0.0F) << name;
    for (const float value : out) {
      ASSERT_LE(std::fabs(value), 2.0F * limit) << name;
    }
  }
}

TEST(Trimmable, EmptyTensorsHaveNoPackets) {
  for (const auto& encoding : all_trimmable_encodings()) {
    EXPECT_EQ(encoding->packet_count(0), 0U);
    EXPECT_TRUE(deliver_all(*encoding, {}, 1, PacketFate::kWhole).empty());
  }
}

TEST(Trimmable, OneCoordinateAndConstantTensorsDecode) {
  for (const auto& encoding : all_trimmable_encodings()) {
    for (const std::size_t length : {1U, 500U}) {
      const std::vector<float> tensor(length, -2.5F);
      const auto whole = deliver_all(*encoding, tensor, 1, PacketFate::kWhole);
      EXPECT_LT(nmse(whole, tensor), 1e-12) << encoding->name();
      const auto trimmed = deliver_all(*encoding, tensor, 1, PacketFate::kTrimmed);
      for (const float value : trimmed) {
        ASSERT_TRUE(std::isfinite(value)) << encoding->name();
        if (encoding->name() != "rht") {  // without spread the heads decode to zero
          ASSERT_EQ(value, 0.0F) << encoding->name();
        }
      }
    }
  }
}

TEST(Trimmable, ZerosDecodeToZerosHoweverTheyArrive) {
  const std::vector<float> zeros(1000, 0.0F);
  for (const auto& encoding : all_trimmable_encodings()) {
    for (const PacketFate fate : {PacketFate::kWhole, PacketFate::kTrimmed, PacketFate::kLost}) {
      ASSERT_EQ(deliver_all(*encoding, zeros, 1, fate), zeros) << encoding->name();
    }
  }
}

TEST(Trimmable, ANonFiniteValueShowsInEveryTrimmedCoordinateOfItsTensorOrRow) {
  for (const float bad : {kNan, kInfinity}) {
    std::vector<float> tensor = gaussian_values(2 * kMaxRowLength, 1);
    tensor[40000] = bad;
    for (const auto& encoding : all_trimmable_encodings()) {
      const bool by_row = encoding->name() == "rht";
      const auto trimmed = deliver_all(*encoding, tensor, 1, PacketFate::kTrimmed);
      const auto whole = deliver_all(*encoding, tensor, 1, PacketFate::kWhole);
      for (std::size_t i = 0; i < tensor.size(); ++i) {
        const bool same_row = i >= kMaxRowLength;
        ASSERT_EQ(std::isnan(trimmed[i]), !by_row || same_row) << encoding->name();
        if (by_row) {
          ASSERT_EQ(std::isnan(whole[i]), same_row);
        } else if (i == 40000) {
          ASSERT_FALSE(std::isfinite(whole[i])) << encoding->name();
        } else {
          ASSERT_NEAR(whole[i], tensor[i], 1e-6F) << encoding->name();
        }
      }
    }
  }
}

TEST(Trimmable, DenormalsStaySmallAndLargeValuesStayNumbersOrBecomeNan) {
  using Limits = std::numeric_limits<float>;
  std::vector<float> tiny(500);
  std::vector<float> huge(500);
  for (std::size_t i = 0; i < tiny.size(); ++i) {
    tiny[i] = (i % 2 == 0 ? 3.0F : -2.0F) * Limits::denorm_min();
    huge[i] = i % 2 == 0 ? Limits::max() : -Limits::max();
  }
  for (const auto& encoding : all_trimmable_encodings()) {
    for (const PacketFate fate : {PacketFate::kWhole, PacketFate::kTrimmed}) {
      for (const float value : deliver_all(*encoding, tiny, 1, fate)) {
        ASSERT_LT(std::fabs(value), 1e-42F) << encoding->name();
      }
      for (const float value : deliver_all(*encoding, huge, 1, fate)) {
        ASSERT_EQ(std::isnan(value), encoding->name() == "rht") << encoding->name();
      }
    }
  }
}

TEST(Trimmable, ATrimmedPacketMayCarryPartOfItsTails) {
  const std::vector<float> tensor = gaussian_values(1000, 1);
  for (const auto& encoding : all_trimmable_encodings()) {
    const Fates fates(encoding->packet_count(tensor.size()), PacketFate::kTrimmed);
    TrimmableMessage message = encoding->encode(tensor, 1);  // not trimmed at all
    std::vector<float> out(tensor.size());
    ASSERT_TRUE(encoding->decode(message, fates, 1, out).ok());
    EXPECT_EQ(out, deliver(*encoding, tensor, 1, fates)) << encoding->name();
  }
}

TEST(Trimmable, EveryPrefixOfAPacketIsDecodedOrRefused) {
  const std::vector<float> tensor = gaussian_values(200, 1);
  for (const auto& encoding : all_trimmable_encodings()) {
    const TrimmableMessage good = encoding->encode(tensor, 1);
    const std::size_t coordinates = encoding->name() == "rht" ? 256 : 200;
    std::vector<float> out(tensor.size(), 7.0F);
    for (std::size_t length = 0; length <= good.packets[0].size() + 1; ++length) {
      TrimmableMessage cut = good;
      cut.packets[0].resize(length);
      const Fates whole = {PacketFate::kWhole};
      const Fates trimmed = {PacketFate::kTrimmed};
      ASSERT_EQ(encoding->decode(cut, whole, 1, out).ok(), length == good.packets[0].size());
      ASSERT_EQ(encoding->decode(cut, trimmed, 1, out).ok(), length >= head_bytes(coordinates));
    }
  }
}

TEST(Trimmable, MissingMetadataPacketsOrFatesAreErrorsThatLeaveTheOutputAlone) {
  const std::vector<float> tensor = gaussian_values(1000, 1);
  for (const auto& encoding : all_trimmable_encodings()) {
    const TrimmableMessage good = encoding->encode(tensor, 1);
    const Fates fates(good.packets.size(), PacketFate::kWhole);
    std::vector<float> out(tensor.size(), 7.0F);
    TrimmableMessage bad = good;
    bad.metadata.clear();
    EXPECT_EQ(encoding->decode(bad, fates, 1, out).code(), base::StatusCode::kMalformed);
    bad = good;
    bad.packets.pop_back();
    EXPECT_EQ(encoding->decode(bad, fates, 1, out).code(), base::StatusCode::kMalformed);
    const Fates fewer(good.packets.size() - 1, PacketFate::kWhole);
    EXPECT_EQ(encoding->decode(good, fewer, 1, out).code(), base::StatusCode::kInvalidArgument);
    Fates unknown = fates;
    unknown[0] = static_cast<PacketFate>(9);
    EXPECT_FALSE(encoding->decode(good, unknown, 1, out).ok());
    EXPECT_EQ(out, std::vector<float>(tensor.size(), 7.0F)) << encoding->name();
  }
}

TEST(Trimmable, RandomBytesDecodeToSomethingWithoutACrash) {
  base::RandomSequence random(5);
  for (const auto& encoding : all_trimmable_encodings()) {
    TrimmableMessage message = encoding->encode(gaussian_values(1000, 1), 1);
    const Fates fates = {PacketFate::kWhole, PacketFate::kTrimmed, PacketFate::kWhole};
    for (int round = 0; round < 20; ++round) {
      for (auto& packet : message.packets) {
        for (std::uint8_t& byte : packet) {
          byte = static_cast<std::uint8_t>(random.next_word());
        }
      }
      for (float& value : message.metadata) {
        value = std::bit_cast<float>(random.next_word());
      }
      std::vector<float> out(1000);
      ASSERT_TRUE(encoding->decode(message, fates, random.next_word(), out).ok());
    }
  }
}

}  // namespace
}  // namespace spillway::codec::reference
