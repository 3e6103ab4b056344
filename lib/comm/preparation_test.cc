// SPDX-License-Identifier: Apache-2.0
#include "comm/preparation.h"

#include <gtest/gtest.h>

namespace spillway::runtime {
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

TEST(Preparation, TheWindowAndOverSendAreAsTheVariablesOrTheCallerSay) {
  using transport::ControllerKind;
  const auto plain = prepare({}, alone_with({}));
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->driver.endpoint.congestion.kind, ControllerKind::kSpillway);
  EXPECT_FALSE(plain->driver.endpoint.exchange.trimmed_target.has_value());
  const base::Environment environment =
      alone_with({{"SPILLWAY_WINDOW", "dctcp"}, {"SPILLWAY_TRIMMED_TARGET", "0.1"}});
  const auto set = prepare({}, environment);
  ASSERT_TRUE(set.ok()) << set.status().message();
  EXPECT_EQ(set->driver.endpoint.congestion.kind, ControllerKind::kDctcp);
  EXPECT_EQ(set->driver.endpoint.exchange.trimmed_target, 0.1);
  CommunicatorConfig config;
  config.window = ControllerKind::kTimely;
  config.trimmed_target = 0.0;
  const auto said = prepare(config, environment);
  EXPECT_EQ(said->driver.endpoint.congestion.kind, ControllerKind::kTimely);
  EXPECT_FALSE(said->driver.endpoint.exchange.trimmed_target.has_value());
}

TEST(Preparation, WhatMayLeaveAtOnceGrowsWithTheLink) {
  const auto burst_at = [](const std::string& rate) {
    const auto prepared = prepare({}, alone_with({{"SPILLWAY_LINK_RATE", rate}}));
    return prepared.ok() ? prepared->driver.send_burst : base::Bytes();
  };
  EXPECT_EQ(burst_at("1000000000"), base::bytes(64 * 1024));
  EXPECT_EQ(burst_at("10000000000"), base::bytes(625'000));  // half a millisecond
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

TEST(Preparation, PlansAndSharesAreAsTheVariablesSay) {
  const auto set = prepare({}, alone_with({{"SPILLWAY_ALGORITHM", "ring"},
                                           {"SPILLWAY_RACK_RANKS", "8"},
                                           {"SPILLWAY_SHARES", "equal"},
                                           {"SPILLWAY_CHUNKS", "balanced"}}));
  ASSERT_TRUE(set.ok()) << set.status().message();
  EXPECT_EQ(set->algorithm, collective::Algorithm::kRing);
  EXPECT_EQ(set->rack_ranks, 8);
  EXPECT_EQ(set->shares, collective::ShareRule::kEqual);
  EXPECT_EQ(set->chunks, collective::ChunkRule::kBalanced);
  const auto plain = prepare({}, alone_with({}));
  EXPECT_EQ(plain->algorithm, collective::Algorithm::kAutomatic);
  EXPECT_EQ(plain->rack_ranks, 0);
  EXPECT_EQ(plain->chunks, collective::EngineConfig{}.coded_chunks);
  EXPECT_EQ(prepare({}, alone_with({{"SPILLWAY_ALGORITHM", "LEVELS"}}))->algorithm,
            collective::Algorithm::kLevels);
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
  const auto refused = prepare({}, alone_with({{"SPILLWAY_TRIMMED_TARGET", "0.6"}}));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("SPILLWAY_TRIMMED_TARGET"), std::string::npos);
}

TEST(Preparation, WithoutBeingAskedNothingIsSecret) {
  const auto prepared = prepare({}, alone_with({}));
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  EXPECT_FALSE(prepared->encrypt);
  EXPECT_TRUE(prepared->secret.empty());
}

}  // namespace
}  // namespace spillway::runtime
