// SPDX-License-Identifier: Apache-2.0
#include "comm/sum_rules.h"

#include <gtest/gtest.h>

namespace spillway::runtime {
namespace {

using collective::Algorithm;
using collective::Group;
using collective::Kind;
using collective::Operation;
using collective::SumCode;
using collective::Tolerance;

constexpr Group kFour{.rank = 1, .world = 4};

Operation tolerant(const Tolerance& tolerance) {
  Operation operation;
  operation.tolerance = tolerance;
  return operation;
}

TEST(SumRules, TolerantOnesAreCodedForSwitchesWithNoFewerBits) {
  const auto coded = [](std::uint8_t precision) {
    const Operation operation =
        with_algorithm(tolerant({.precision = precision}), Algorithm::kSwitch, kFour);
    EXPECT_EQ(operation.algorithm, Algorithm::kSwitch);
    EXPECT_TRUE(validate(operation, kFour).ok()) << int{precision};
    return std::pair(operation.tolerance->code, operation.tolerance->precision);
  };
  EXPECT_EQ(coded(1), std::pair(SumCode::kLevels, std::uint8_t{2}));
  EXPECT_EQ(coded(3), std::pair(SumCode::kLevels, std::uint8_t{3}));
  EXPECT_EQ(coded(5), std::pair(SumCode::kLevels, std::uint8_t{8}));
  EXPECT_EQ(coded(8), std::pair(SumCode::kLevels, std::uint8_t{8}));
  EXPECT_EQ(coded(9), std::pair(SumCode::kBlocks, std::uint8_t{9}));
}

TEST(SumRules, ACodeThatWasAskedForStays) {
  const Operation operation = with_algorithm(tolerant({.code = SumCode::kBlocks, .precision = 4}),
                                             Algorithm::kSwitch, kFour);
  EXPECT_EQ(operation.tolerance->code, SumCode::kBlocks);
  EXPECT_EQ(operation.tolerance->precision, 4);
}

TEST(SumRules, AllElseGoesAsIfNothingHadBeenSaid) {
  const auto is_unchanged = [](const Operation& asked, const Group& group) {
    const Operation made = with_algorithm(asked, Algorithm::kSwitch, group);
    const SumCode code = made.tolerance ? made.tolerance->code : SumCode::kPlanes;
    return made.algorithm == asked.algorithm && code == SumCode::kPlanes;
  };
  EXPECT_TRUE(is_unchanged({}, kFour));
  Operation broadcast;
  broadcast.kind = Kind::kBroadcast;
  EXPECT_TRUE(is_unchanged(broadcast, kFour));
  EXPECT_TRUE(is_unchanged(tolerant({.lossy_gather = true}), kFour));
  EXPECT_TRUE(is_unchanged(tolerant({}), {.rank = 0, .world = 129}));
  Operation direct = tolerant({});
  direct.algorithm = Algorithm::kDirect;
  EXPECT_TRUE(is_unchanged(direct, kFour));
}

TEST(SumRules, OtherAlgorithmsAreOfExactOperations) {
  EXPECT_EQ(with_algorithm({}, Algorithm::kRing, kFour).algorithm, Algorithm::kRing);
  EXPECT_EQ(with_algorithm(tolerant({}), Algorithm::kRing, kFour).algorithm, Algorithm::kAutomatic);
  Operation send;
  send.kind = Kind::kSend;
  EXPECT_EQ(with_algorithm(send, Algorithm::kRing, kFour).algorithm, Algorithm::kAutomatic);
}

TEST(SumRules, CodedNumbersGoRoundARingAndBySwitchesThatDoNotAdd) {
  for (const SumCode code : {SumCode::kCoded, SumCode::kSketch}) {
    const Operation coded = tolerant({.code = code, .precision = 8, .loss_bound_ppm = 0});
    EXPECT_EQ(with_algorithm(coded, Algorithm::kRing, kFour).algorithm, Algorithm::kRing);
    EXPECT_EQ(with_algorithm(coded, Algorithm::kSwitch, kFour).algorithm, Algorithm::kAutomatic);
    EXPECT_EQ(with_algorithm(coded, Algorithm::kSwitch, kFour).tolerance->code, code);
    EXPECT_TRUE(check_sums(coded, /*encrypts=*/true, {.mtu = 1280}).ok());
  }
}

TEST(SumRules, WhatIsEncryptedOrTooSmallCarriesNoSums) {
  const Operation levels = tolerant({.code = SumCode::kLevels, .precision = 4});
  const packetize::PacketLimits usual;
  EXPECT_TRUE(check_sums(levels, /*encrypts=*/false, usual).ok());
  const base::Status encrypted = check_sums(levels, /*encrypts=*/true, usual);
  EXPECT_NE(encrypted.message().find("leave SPILLWAY_ENCRYPT away"), std::string::npos);
  EXPECT_TRUE(check_sums(tolerant({}), /*encrypts=*/true, usual).ok());
  EXPECT_TRUE(check_sums({}, /*encrypts=*/true, usual).ok());
  const packetize::PacketLimits small{.mtu = 1280};
  EXPECT_NE(check_sums(levels, false, small).message().find("MTU is 1280"), std::string::npos);
  EXPECT_TRUE(check_sums(tolerant({}), false, small).ok());
  const packetize::PacketLimits least{.mtu = 1460};
  EXPECT_TRUE(check_sums(levels, false, least).ok());
}

}  // namespace
}  // namespace spillway::runtime
