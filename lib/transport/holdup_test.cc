// SPDX-License-Identifier: Apache-2.0
//
// Tests what an endpoint reports as its holdup, and counts as retransmitted or received in vain.
#include <gtest/gtest.h>

#include "transport/endpoint.h"
#include "transport/exchange_testing.h"

namespace spillway::transport {
namespace {

// Drains what may go now; nobody answers.
std::uint32_t drain(Endpoint& endpoint, base::Instant now) {
  std::uint32_t data = 0;
  for (Transmission out; endpoint.poll_transmit(now, out);) {
    data += out.route.is_control ? 0 : 1;
  }
  return data;
}

TEST(Holdup, FollowsAMessageFromItsStartToItsEnd) {
  Exchange net(2);
  EXPECT_EQ(net[0].holdup(), Holdup::kIdle);
  const SendOptions options = net.send_options(10, 0, 1);
  ASSERT_TRUE(net.start(options).ok());
  EXPECT_EQ(net[0].holdup(), Holdup::kNothing);
  EXPECT_EQ(net[1].holdup(), Holdup::kIncoming);
  net.filter = [](TestPacket& packet, base::Duration&) { return packet.from == 0 ? 1 : 0; };
  net.run(base::milliseconds(1));  // everything arrives, and no answer does
  EXPECT_EQ(net[0].holdup(), Holdup::kAnswer);
  net.filter = [](TestPacket&, base::Duration&) { return 1; };
  net.run();
  EXPECT_EQ(net[0].holdup(), Holdup::kIdle);
  EXPECT_EQ(net[1].holdup(), Holdup::kIdle);
}

TEST(Holdup, AMessageLongerThanWhatMayGoUnaskedWaitsForCreditOrTheWindow) {
  EndpointConfig config;
  config.exchange.unsolicited = base::bytes(4'000);
  Exchange net(2, config);
  ASSERT_TRUE(net.start(net.send_options(1'000, 0, 1)).ok());
  EXPECT_LT(drain(net[0], net.now()), 1'000U);
  const Holdup holdup = net[0].holdup();
  EXPECT_TRUE(holdup == Holdup::kCredit || holdup == Holdup::kWindow) << static_cast<int>(holdup);
}

TEST(Holdup, WhatIsSentAgainAndWhatArrivesTwiceIsCountedInBytes) {
  Exchange net(2);
  bool is_first = true;
  net.filter = [&is_first](TestPacket& packet, base::Duration&) {
    if (packet.sent.route.is_control || packet.sent.data.packet != 3) {
      return 1;
    }
    return std::exchange(is_first, false) ? 0 : 2;  // lost once, then doubled
  };
  SendOptions options = net.send_options(10, 0, 1);
  options.loss.loss_bound_ppm = 0;
  ASSERT_TRUE(net.start(options).ok());
  net.run();
  EXPECT_EQ(net[0].counters().data_sent_bytes, net[0].counters().data_sent * 1'000);
  EXPECT_EQ(net[0].counters().data_resent_bytes, net[0].counters().data_resent * 1'000);
  EXPECT_GE(net[0].counters().data_resent_bytes, 1'000U);
  EXPECT_GE(net[1].counters().wasted_bytes, 1'000U);
}

}  // namespace
}  // namespace spillway::transport
