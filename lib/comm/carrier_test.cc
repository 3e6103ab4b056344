// SPDX-License-Identifier: Apache-2.0
#include "comm/carrier.h"

#include <gtest/gtest.h>

#include "wire/packet.h"

namespace spillway::runtime {
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
  const Preparation prepared =
      prepared_with({{"SPILLWAY_CARRIER", "tcp"}, {"SPILLWAY_TCP_CONGESTION", "bbr"}});
  EXPECT_EQ(prepared.driver.carrier, net::Carrier::kTcp);
  EXPECT_EQ(prepared.driver.tcp.congestion, "bbr");
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
  EXPECT_TRUE(is_card("10.0.0.1:7000 1500 0 machine tcp 0 striped"));
  EXPECT_FALSE(is_card("10.0.0.1:7000 1500 0 machine sctp 0 striped"));
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
  EXPECT_FALSE(is_card("10.0.0.1:7000 1500 0 machine tcp many striped"));
}

TEST(RankCard, SaysHowCodedTensorsAreSharedOutWhichIsTheSameOnAll) {
  std::vector<RankCard> cards(3);
  for (RankCard& card : cards) {
    card.data = net::SocketAddress::parse("10.0.0.1:7000").value();
    card.machine = "machine";
    card.chunks = collective::ChunkRule::kBalanced;
    EXPECT_EQ(parse_rank_card(to_blob(card))->chunks, collective::ChunkRule::kBalanced);
  }
  EXPECT_TRUE(check_plans(cards).ok());
  cards[1].chunks = collective::ChunkRule::kEqual;
  const base::Status said = check_plans(cards);
  ASSERT_FALSE(said.ok());
  EXPECT_EQ(said.message(),
            "rank 0 has balanced chunks (SPILLWAY_CHUNKS), rank 1 has equal ones; set "
            "SPILLWAY_CHUNKS to the same everywhere");
  EXPECT_FALSE(is_card("10.0.0.1:7000 1500 0 machine tcp 0"));
  EXPECT_FALSE(is_card("10.0.0.1:7000 1500 0 machine tcp 0 wide"));
}

}  // namespace
}  // namespace spillway::runtime
