// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "comm/preparation.h"
#include "wire/packet.h"

namespace spillway::comm {

namespace {

base::Environment alone_with(std::initializer_list<std::pair<std::string, std::string>> more) {
  base::Environment environment{{"SPILLWAY_RANK", "0"}, {"SPILLWAY_WORLD_SIZE", "1"}};
  for (const auto& [name, value] : more) {
    environment.set(name, value);
  }
  return environment;
}

TEST(Preparation, EncryptionNeedsASecret) {
  const auto without = prepare({}, alone_with({{"SPILLWAY_ENCRYPT", "1"}}));
  ASSERT_FALSE(without.ok());
  EXPECT_NE(without.status().message().find("set SPILLWAY_SECRET_FILE"), std::string::npos);
  const auto with = prepare(
      {}, alone_with({{"SPILLWAY_ENCRYPT", "1"}, {"SPILLWAY_SECRET", "a secret of twenty-two"}}));
  ASSERT_TRUE(with.ok()) << with.status().message();
  EXPECT_TRUE(with->encrypt);
  EXPECT_EQ(with->secret.bytes().size(), 22U);
}

TEST(Preparation, OverSendIsAsTheCallerSays) {
  const auto plain = prepare({}, alone_with({}));
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_FALSE(plain->driver.endpoint.exchange.trimmed_target.has_value());
  CommunicatorConfig config;
  config.trimmed_target = 0.1;
  EXPECT_EQ(prepare(config, alone_with({}))->driver.endpoint.exchange.trimmed_target, 0.1);
  config.trimmed_target = 0.0;
  EXPECT_FALSE(
      prepare(config, alone_with({}))->driver.endpoint.exchange.trimmed_target.has_value());
}

TEST(Preparation, WhatMayLeaveAtOnceGrowsWithTheLink) {
  const auto burst_at = [](const std::string& rate) {
    const auto prepared =
        prepare({}, alone_with({{"SPILLWAY_LINK_RATE", rate}, {"SPILLWAY_MTU", "1500"}}));
    return prepared.ok() ? prepared->driver.send_burst : base::Bytes();
  };
  EXPECT_EQ(burst_at("100000000"), base::bytes(8 * 1500));  // packets
  EXPECT_EQ(burst_at("1000000000"), base::bytes(62'500));   // half a millisecond
  EXPECT_EQ(burst_at("10000000000"), base::bytes(625'000));
}

TEST(Preparation, BurstsLeaveInOnePiece) {
  const auto burst_of = [](const std::string& mtu) {
    const auto prepared =
        prepare({}, alone_with({{"SPILLWAY_LINK_RATE", "10000000000"}, {"SPILLWAY_MTU", mtu}}));
    return prepared.ok() ? prepared->driver.endpoint.exchange.burst_packets : std::uint8_t{0};
  };
  EXPECT_EQ(burst_of("1500"), 16);
  EXPECT_EQ(burst_of("9000"), 7);
  EXPECT_EQ(burst_of("65536"), 1);
}

TEST(Preparation, PlansAreAsTheVariablesSay) {
  const auto set =
      prepare({}, alone_with({{"SPILLWAY_ALGORITHM", "ring"}, {"SPILLWAY_RACK_RANKS", "8"}}));
  ASSERT_TRUE(set.ok()) << set.status().message();
  EXPECT_EQ(set->algorithm, collective::Algorithm::kRing);
  EXPECT_EQ(set->rack_ranks, 8);
  const auto plain = prepare({}, alone_with({}));
  EXPECT_EQ(plain->algorithm, collective::Algorithm::kAutomatic);
  EXPECT_EQ(plain->rack_ranks, 0);
  EXPECT_EQ(prepare({}, alone_with({{"SPILLWAY_ALGORITHM", "HIERARCHICAL"}}))->algorithm,
            collective::Algorithm::kHierarchical);
  EXPECT_EQ(prepare({}, alone_with({{"SPILLWAY_ALGORITHM", "switch"}}))->algorithm,
            collective::Algorithm::kSwitch);
  const auto refused = prepare({}, alone_with({{"SPILLWAY_ALGORITHM", "rings"}}));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("SPILLWAY_ALGORITHM"), std::string::npos);
}

TEST(Preparation, SwitchesCannotAddWhatIsEncrypted) {
  const auto refused = prepare({}, alone_with({{"SPILLWAY_ALGORITHM", "switch"},
                                               {"SPILLWAY_ENCRYPT", "1"},
                                               {"SPILLWAY_SECRET", "a secret of twenty-two"}}));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("leave one of them away"), std::string::npos);
}

TEST(Preparation, MoreThanHalfIsNotSentToBeCut) {
  CommunicatorConfig config;
  config.trimmed_target = 0.6;
  const auto refused = prepare(config, alone_with({}));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("trimmed target"), std::string::npos);
}

TEST(Preparation, WithoutBeingAskedNothingIsSecret) {
  const auto prepared = prepare({}, alone_with({}));
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  EXPECT_FALSE(prepared->encrypt);
  EXPECT_TRUE(prepared->secret.empty());
}

}  // namespace

namespace {

Preparation prepared_with(const base::Environment& environment) {
  Preparation preparation;
  preparation.mtu = 1500;
  preparation.trim_bytes = 206;
  preparation.driver.send_rate = base::gigabits_per_second(1);
  EXPECT_TRUE(take_carrier(environment, preparation).ok());
  return preparation;
}

TEST(Carrier, IsUdpUnlessThatDoesNotGetThrough) {
  const Preparation prepared = prepared_with({});
  EXPECT_EQ(prepared.driver.carrier, net::Carrier::kAuto);
  EXPECT_EQ(prepared.mtu, 1500U);
  EXPECT_EQ(prepared.trim_bytes, 206U);
}

TEST(Carrier, OverTcpNothingIsPacedCutOrSprayed) {
  const Preparation prepared = prepared_with({{"SPILLWAY_CARRIER", "tcp"}});
  EXPECT_EQ(prepared.driver.carrier, net::Carrier::kTcp);
  EXPECT_EQ(prepared.mtu, 9000U);
  EXPECT_EQ(prepared.trim_bytes, 0U);
  EXPECT_EQ(prepared.driver.send_rate, base::BitRate());
  EXPECT_EQ(prepared.driver.endpoint.exchange.paths, 1);
}

TEST(Carrier, ANameThatThereIsNotIsRefused) {
  Preparation preparation;
  const base::Status refused = take_carrier({{"SPILLWAY_CARRIER", "sctp"}}, preparation);
  EXPECT_EQ(refused.message(), "SPILLWAY_CARRIER is 'sctp': it must be auto, udp or tcp");
}

TEST(Carrier, IsOnEveryCardAndTheSameOnAll) {
  std::vector<RankCard> cards(3);
  for (RankCard& card : cards) {
    card.data = net::SocketAddress::parse("10.0.0.1:7000").value();
    card.machine = "machine";
    card.carrier = net::Carrier::kTcp;
    EXPECT_EQ(parse_rank_card(to_blob(card))->carrier, net::Carrier::kTcp);
  }
  EXPECT_TRUE(check_carriers(cards).ok());
  cards[2].carrier = net::Carrier::kUdp;
  const base::Status said = check_carriers(cards);
  ASSERT_FALSE(said.ok());
  EXPECT_EQ(said.message(),
            "rank 0 sends over TCP (SPILLWAY_CARRIER=tcp), rank 2 over UDP (=udp); set "
            "SPILLWAY_CARRIER to the same everywhere");
}

bool is_card(const std::string& text) {
  return parse_rank_card(Blob(text.begin(), text.end())).ok();
}

TEST(Carrier, ACardWithAnotherIsNone) {
  EXPECT_TRUE(is_card("10.0.0.1:7000 1500 0 machine tcp 0"));
  EXPECT_FALSE(is_card("10.0.0.1:7000 1500 0 machine sctp 0"));
}

TEST(RankCard, SaysHowManyRanksARackHasWhichIsTheSameOnAll) {
  std::vector<RankCard> cards(3);
  for (RankCard& card : cards) {
    card.data = net::SocketAddress::parse("10.0.0.1:7000").value();
    card.machine = "machine";
    card.rack_ranks = 8;
    EXPECT_EQ(parse_rank_card(to_blob(card))->rack_ranks, 8);
  }
  EXPECT_TRUE(check_plans(cards).ok());
  cards[2].rack_ranks = 0;
  const base::Status said = check_plans(cards);
  ASSERT_FALSE(said.ok());
  EXPECT_EQ(said.message(),
            "rank 0 has 8 ranks in a rack (SPILLWAY_RACK_RANKS), rank 2 has 0; set "
            "SPILLWAY_RACK_RANKS to the same everywhere");
  EXPECT_FALSE(is_card("10.0.0.1:7000 1500 0 machine tcp"));
  EXPECT_FALSE(is_card("10.0.0.1:7000 1500 0 machine tcp many"));
}

}  // namespace

namespace {

using collective::Algorithm;
using collective::Codec;
using collective::Group;
using collective::Kind;
using collective::Operation;
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
    return std::pair(operation.tolerance->codec, operation.tolerance->precision);
  };
  EXPECT_EQ(coded(1), std::pair(Codec::kLevels, std::uint8_t{2}));
  EXPECT_EQ(coded(3), std::pair(Codec::kLevels, std::uint8_t{3}));
  EXPECT_EQ(coded(5), std::pair(Codec::kLevels, std::uint8_t{8}));
  EXPECT_EQ(coded(8), std::pair(Codec::kLevels, std::uint8_t{8}));
  EXPECT_EQ(coded(9), std::pair(Codec::kBlocks, std::uint8_t{9}));
}

TEST(SumRules, ACodeThatWasAskedForStays) {
  const Operation operation = with_algorithm(tolerant({.codec = Codec::kBlocks, .precision = 4}),
                                             Algorithm::kSwitch, kFour);
  EXPECT_EQ(operation.tolerance->codec, Codec::kBlocks);
  EXPECT_EQ(operation.tolerance->precision, 4);
}

TEST(SumRules, AllElseGoesAsIfNothingHadBeenSaid) {
  const auto is_unchanged = [](const Operation& asked, const Group& group) {
    const Operation made = with_algorithm(asked, Algorithm::kSwitch, group);
    const Codec codec = made.tolerance ? made.tolerance->codec : Codec::kPlanes;
    return made.algorithm == asked.algorithm && codec == Codec::kPlanes;
  };
  EXPECT_TRUE(is_unchanged({}, kFour));
  Operation broadcast;
  broadcast.kind = Kind::kBroadcast;
  EXPECT_TRUE(is_unchanged(broadcast, kFour));
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
  for (const Codec codec : {Codec::kEntropy, Codec::kSketch}) {
    const Operation coded = tolerant({.codec = codec, .precision = 8, .loss_bound_ppm = 0});
    EXPECT_EQ(with_algorithm(coded, Algorithm::kRing, kFour).algorithm, Algorithm::kRing);
    EXPECT_EQ(with_algorithm(coded, Algorithm::kSwitch, kFour).algorithm, Algorithm::kAutomatic);
    EXPECT_EQ(with_algorithm(coded, Algorithm::kSwitch, kFour).tolerance->codec, codec);
  }
}

}  // namespace

}  // namespace spillway::comm
