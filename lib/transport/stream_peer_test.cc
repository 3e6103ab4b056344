// SPDX-License-Identifier: Apache-2.0
//
// Peers whose packets travel over a stream: nothing is held back, nothing is given up.
#include <gtest/gtest.h>

#include "transport/exchange_testing.h"

namespace spillway::transport {
namespace {

void use_streams(Exchange& net, std::uint16_t ranks) {
  for (std::uint16_t a = 0; a < ranks; ++a) {
    for (std::uint16_t b = 0; b < ranks; ++b) {
      net[a].use_stream(b);
    }
  }
}

std::uint32_t data_at_once(Endpoint& endpoint, base::Instant now, std::uint16_t to) {
  std::uint32_t packets = 0;
  Transmission out;
  while (endpoint.poll_transmit(now, out)) {
    packets += !out.route.is_control && out.route.peer == to ? 1 : 0;
  }
  return packets;
}

TEST(StreamPeer, NoWindowHoldsItsPacketsBack) {
  EndpointConfig config;
  config.exchange.unsolicited = base::bytes(10'000'000);
  config.congestion.window_initial = base::bytes(20'000);
  for (const bool is_stream : {false, true}) {
    Exchange net(2, config);
    if (is_stream) {
      use_streams(net, 2);
    }
    ASSERT_TRUE(net.start(net.send_options(5000, 0, 1)).ok());
    const std::uint32_t sent = data_at_once(net[0], net.now(), 1);
    EXPECT_EQ(sent == 5000U, is_stream) << sent;
  }
}

TEST(StreamPeer, CreditIsForAllOfAMessage) {
  Exchange net(2);
  use_streams(net, 2);
  std::uint32_t most = 0;
  std::uint32_t credits = 0;
  net.filter = [&](TestPacket& packet, base::Duration&) {
    if (packet.sent.route.is_control && packet.sent.control.type == wire::ControlType::kCredit) {
      credits += packet.sent.control.credit.granted > most ? 1 : 0;
      most = std::max(most, packet.sent.control.credit.granted);
    }
    return 1;
  };
  ASSERT_TRUE(net.start(net.send_options(5000, 0, 1)).ok());
  net.run();
  EXPECT_LE(credits, 2U);  // and standing credit for the next message
  EXPECT_GE(most, 5000U);
  ASSERT_EQ(net.sent(0).size(), 1U);
  EXPECT_EQ(net.sent(0)[0].transmitted, 5000U);
}

TEST(StreamPeer, WhatMayBeLostIsWaitedFor) {
  Exchange net(2);
  use_streams(net, 2);
  // Late, as behind a segment that TCP retransmits, with all that follows.
  net.filter = [](TestPacket&, base::Duration& extra) {
    extra = base::milliseconds(30);
    return 1;
  };
  SendOptions options = net.send_options(1000, 0, 1);
  options.loss.loss_bound_ppm = 500'000;
  ASSERT_TRUE(net.start(options).ok());
  net.run();
  ASSERT_EQ(net.received(1).size(), 1U);
  EXPECT_EQ(net.received(1)[0].outcome, Outcome::kEverything);
  EXPECT_EQ(net.sent(0)[0].transmitted, 1000U);
}

TEST(StreamPeer, AFullStreamHoldsUpItsPeerAlone) {
  Exchange net(3);
  use_streams(net, 3);
  net[0].set_full(1, true);
  ASSERT_TRUE(net.start(net.send_options(300, 0, 1)).ok());
  ASSERT_TRUE(net.start(net.send_options(300, 0, 2, 2)).ok());
  net.run(base::milliseconds(20));
  EXPECT_TRUE(net.received(1).empty());
  ASSERT_EQ(net.received(2).size(), 1U);
  net[0].set_full(1, false);
  net.run();
  ASSERT_EQ(net.received(1).size(), 1U);
  EXPECT_EQ(net.received(1)[0].whole, 300U);
}

// Datagrams vanish until both ends use a stream: what was under way arrives all the same.
TEST(StreamPeer, WhatIsUnderWayGoesOnOverTheStream) {
  Exchange net(2);
  bool is_stream = false;
  net.filter = [&](TestPacket&, base::Duration&) { return is_stream ? 1 : 0; };
  ASSERT_TRUE(net.start(net.send_options(2000, 0, 1)).ok());
  net.run(base::milliseconds(300));
  EXPECT_FALSE(net[0].contact(1, net.now()).has_spoken);
  EXPECT_TRUE(net[0].contact(1, net.now()).is_awaited);
  EXPECT_GE(net[0].contact(1, net.now()).silence, base::milliseconds(250));
  is_stream = true;
  use_streams(net, 2);
  net.run();
  ASSERT_EQ(net.received(1).size(), 1U);
  EXPECT_TRUE(net[0].contact(1, net.now()).has_spoken);
}

TEST(StreamPeer, ItIsGivenMoreTime) {
  Exchange net(2);
  use_streams(net, 2);
  ASSERT_TRUE(net.start(net.send_options(10, 0, 1)).ok());
  net.kill(1);
  const base::Duration timeout = net[0].config().exchange.peer_timeout;
  net.run(timeout * 2);
  EXPECT_TRUE(net.dead_peers(0).empty());
  net.run(timeout * 3);
  EXPECT_EQ(net.dead_peers(0).size(), 1U);
}

}  // namespace
}  // namespace spillway::transport
