// SPDX-License-Identifier: Apache-2.0
//
// Messages that stall, and messages and peers whose packets travel over a stream.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/random.h"
#include "transport/exchange_testing.h"
#include "transport/message.h"

namespace spillway::transport {
namespace {

// ------------------------------------------------------------------ stalls

constexpr base::Duration kLong = base::seconds(15);

EndpointConfig watchful() {
  EndpointConfig config;
  config.reports_stalls = true;
  // Quick retransmissions would only make the tests long.
  config.exchange.probe_min = base::milliseconds(20);
  config.exchange.linger_min = base::milliseconds(10);
  return config;
}

// A network that takes no datagrams above `most` bytes.
Exchange::Filter black_hole(std::uint32_t most) {
  return [most](TestPacket& packet, base::Duration&) {
    return !packet.sent.route.is_control && packet.sent.data_bytes > most ? 0 : 1;
  };
}

TEST(Stall, LongDatagramsThatVanishAreNamedWithinTenSeconds) {
  Exchange net(2, watchful());
  net.filter = black_hole(800);
  const base::Instant start = net.now();
  ASSERT_TRUE(net.start(net.send_options(60, 0, 1)).ok());
  while (net.stalled(0).empty() && net.now() - start < kLong) {
    net.run(base::milliseconds(100));
  }
  ASSERT_EQ(net.stalled(0).size(), 1U);
  EXPECT_LE(net.now() - start, base::seconds(10));
  const MessageStalled& stall = net.stalled(0)[0];
  EXPECT_EQ(stall.peer, 1);
  EXPECT_EQ(stall.side, StallSide::kSending);
  EXPECT_EQ(stall.reason, StallReason::kTooBig);
  EXPECT_EQ(stall.datagram_bytes, 1000U);
  EXPECT_GE(stall.packets, kStallPackets);
  EXPECT_EQ(stall.paths, 8);
  EXPECT_TRUE(net.dead_peers(0).empty());
}

TEST(Stall, AReceiverNamesItsSenderToo) {
  Exchange net(2, watchful());
  net.filter = black_hole(800);
  ASSERT_TRUE(net.start(net.send_options(60, 0, 1)).ok());
  net.run(base::seconds(10));
  ASSERT_EQ(net.stalled(1).size(), 1U);
  EXPECT_EQ(net.stalled(1)[0].peer, 0);
  EXPECT_EQ(net.stalled(1)[0].side, StallSide::kReceiving);
  EXPECT_EQ(net.stalled(1)[0].reason, StallReason::kTooBig);
}

TEST(Stall, IsToldOnceAndNeverUnasked) {
  Exchange net(2, watchful());
  net.filter = black_hole(800);
  ASSERT_TRUE(net.start(net.send_options(60, 0, 1)).ok());
  net.run(kLong);
  EXPECT_EQ(net.stalled(0).size(), 1U);
  EndpointConfig unasked = watchful();
  unasked.reports_stalls = false;
  Exchange quiet(2, unasked);
  quiet.filter = black_hole(800);
  ASSERT_TRUE(quiet.start(quiet.send_options(60, 0, 1)).ok());
  quiet.run(kLong);
  EXPECT_TRUE(quiet.stalled(0).empty() && quiet.stalled(1).empty());
}

TEST(Stall, ShortMessagesThatPassDoNotHideIt) {
  Exchange net(2, watchful());
  net.filter = black_hole(400);
  ASSERT_TRUE(net.start(net.send_options(60, 0, 1)).ok());
  for (std::uint32_t operation = 2; operation < 80; ++operation) {
    SendOptions small = net.send_options(3, 0, 1, operation);
    small.packet_bytes = 300;
    ASSERT_TRUE(net.start(small).ok());
    net.run(base::milliseconds(100));
  }
  EXPECT_GE(net.sent(0).size(), 70U);  // some may wait for their turn behind its retransmissions
  ASSERT_EQ(net.stalled(0).size(), 1U);
  EXPECT_EQ(net.stalled(0)[0].id.operation, 1U);
}

TEST(Stall, DataThatIsFilteredWhateverItsSizeIsLost) {
  Exchange net(2, watchful());
  net.filter = black_hole(0);
  SendOptions options = net.send_options(100, 0, 1);
  options.packet_bytes = 500;
  ASSERT_TRUE(net.start(options).ok());
  net.run(base::seconds(10));
  ASSERT_EQ(net.stalled(0).size(), 1U);
  EXPECT_EQ(net.stalled(0)[0].reason, StallReason::kLost);
}

TEST(Stall, ASingleDatagramIsNamedToo) {
  Exchange net(2, watchful());
  net.filter = black_hole(0);
  ASSERT_TRUE(net.start(net.send_options(1, 0, 1)).ok());
  net.run(base::seconds(10));
  ASSERT_EQ(net.stalled(0).size(), 1U);
}

TEST(Stall, WhatTheKernelRefusesHasItsError) {
  Exchange net(2, watchful());
  net.filter = [&net](TestPacket& packet, base::Duration&) {
    if (packet.sent.route.is_control) {
      return 1;
    }
    net[packet.from].on_unsent(packet.sent.route.peer, packet.sent.data_bytes, EMSGSIZE, net.now());
    return 0;
  };
  ASSERT_TRUE(net.start(net.send_options(100, 0, 1)).ok());
  net.run(base::seconds(10));
  ASSERT_EQ(net.stalled(0).size(), 1U);
  EXPECT_EQ(net.stalled(0)[0].reason, StallReason::kBlockedHere);
  EXPECT_EQ(net.stalled(0)[0].error, EMSGSIZE);
  EXPECT_EQ(net.stalled(0)[0].datagram_bytes, 1000U);
}

TEST(Stall, AReceiverThatHasNotBegunIsWaitedFor) {
  for (const std::size_t early_bytes : {0, 1 << 20}) {
    EndpointConfig config = watchful();
    config.limits.early_bytes = early_bytes;
    Exchange net(2, config);
    const SendOptions options = net.send_options(60, 0, 1);
    ASSERT_TRUE(net[0].send(options, net.now()).ok());
    net.run(kLong);
    EXPECT_TRUE(net.stalled(0).empty()) << early_bytes;
    ASSERT_TRUE(net[1].expect(Exchange::receive_options(options), net.now()).ok());
    net.run(base::seconds(1));
    EXPECT_EQ(net.sent(0).size(), 1U) << early_bytes;
  }
}

TEST(Stall, HeavyLossIsNone) {
  Exchange net(2, watchful());
  net.filter = [random = base::RandomSequence(1)](TestPacket&, base::Duration&) mutable {
    return random.next_unit() < 0.8 ? 0 : 1;
  };
  SendOptions options = net.send_options(500, 0, 1);
  options.loss.loss_bound_ppm = 0;
  ASSERT_TRUE(net.start(options).ok());
  net.run(base::seconds(60));
  EXPECT_EQ(net.received(1).size(), 1U);
  EXPECT_TRUE(net.stalled(0).empty() && net.stalled(1).empty());
}

// The receiver's link is busy with something more urgent for a quarter of a minute.
TEST(Stall, AReceiverThatIsBusyWithOthersIsWaitedFor) {
  EndpointConfig config = watchful();
  config.exchange.receive_rate = base::bits_per_second(1'000'000);
  Exchange net(3, config);
  SendOptions urgent = net.send_options(1800, 1, 2);
  urgent.priority = 7;
  ASSERT_TRUE(net.start(urgent).ok());
  net.run(base::milliseconds(10));
  ASSERT_TRUE(net.start(net.send_options(300, 0, 2)).ok());
  net.run(base::seconds(60));
  EXPECT_EQ(net.received(2).size(), 2U);
  for (const std::uint16_t rank : {0, 1, 2}) {
    EXPECT_TRUE(net.stalled(rank).empty()) << rank;
  }
}

TEST(Stall, ANetworkThatRecoversInTimeIsForgiven) {
  Exchange net(2, watchful());
  const base::Instant start = net.now();
  net.filter = [&net, start](TestPacket& packet, base::Duration&) {
    const bool is_broken = net.now() - start < base::seconds(4);
    return is_broken && !packet.sent.route.is_control ? 0 : 1;
  };
  ASSERT_TRUE(net.start(net.send_options(60, 0, 1)).ok());
  net.run(kLong);
  EXPECT_EQ(net.received(1).size(), 1U);
  EXPECT_TRUE(net.stalled(0).empty() && net.stalled(1).empty());
}

// ------------------------------------------------------------------ streams

void open_streams(Exchange& net, std::uint16_t ranks) {
  for (std::uint16_t a = 0; a < ranks; ++a) {
    for (std::uint16_t b = 0; b < ranks; ++b) {
      net[a].set_stream(b, StreamState::kReady);
    }
  }
}

SendOptions on_stream(SendOptions options) {
  options.carrier = Carrier::kStream;
  return options;
}

bool is_streamed(const TestPacket& packet) {
  return packet.sent.route.carrier == Carrier::kStream;
}

bool is_credit(const TestPacket& packet) {
  return packet.sent.route.is_control && packet.sent.control.type == wire::ControlType::kCredit;
}

TEST(StreamMessage, NeedsNeitherCreditNorReports) {
  Exchange net(2);
  open_streams(net, 2);
  std::uint32_t reports = 0;
  std::uint32_t datagrams = 0;
  net.filter = [&](TestPacket& packet, base::Duration&) {
    reports += packet.sent.route.is_control ? 1 : 0;
    EXPECT_NE(packet.sent.route.is_control, is_streamed(packet));
    datagrams += is_streamed(packet) ? 0 : 1;
    return 1;
  };
  ASSERT_TRUE(net.start(on_stream(net.send_options(5000, 0, 1))).ok());
  net.run();
  ASSERT_EQ(net.sent(0).size(), 1U);
  EXPECT_EQ(net.sent(0)[0].transmitted, 5000U);
  EXPECT_EQ(net.received(1)[0].outcome, Outcome::kEverything);
  EXPECT_EQ(datagrams, reports);
  EXPECT_LE(reports, 4U);  // the last says that all of it came
}

TEST(StreamMessage, GoesBesideDatagramsToTheSamePeer) {
  Exchange net(2);
  open_streams(net, 2);
  net.filter = [random = base::RandomSequence(1)](TestPacket& packet, base::Duration&) mutable {
    return !is_streamed(packet) && random.next_unit() < 0.1 ? 0 : 1;
  };
  SendOptions lossless = net.send_options(3000, 0, 1, 1);
  lossless.loss.loss_bound_ppm = 0;
  ASSERT_TRUE(net.start(lossless).ok());
  ASSERT_TRUE(net.start(on_stream(net.send_options(3000, 0, 1, 2))).ok());
  ASSERT_TRUE(net.start(on_stream(net.send_options(3000, 1, 0, 3))).ok());
  net.run();
  ASSERT_EQ(net.sent(0).size(), 2U);
  for (const SendReport& report : net.sent(0)) {
    EXPECT_EQ(report.delivered, 3000U);
    EXPECT_EQ(report.transmitted > 3000U, report.id.operation == 1) << "only datagrams are lost";
  }
  ASSERT_EQ(net.received(0).size(), 1U);
  EXPECT_EQ(net.received(0)[0].whole, 3000U);
}

TEST(StreamMessage, OfOneUrgencyTakesTurnsWithDatagrams) {
  Exchange net(2);
  open_streams(net, 2);
  std::vector<Carrier> order;
  net.filter = [&](TestPacket& packet, base::Duration&) {
    if (!packet.sent.route.is_control) {
      order.push_back(packet.sent.route.carrier);
    }
    return 1;
  };
  ASSERT_TRUE(net.start(net.send_options(32, 0, 1, 1)).ok());
  ASSERT_TRUE(net.start(on_stream(net.send_options(32, 0, 1, 2))).ok());
  SendOptions urgent = on_stream(net.send_options(8, 0, 1, 3));
  urgent.priority = 5;
  ASSERT_TRUE(net.start(urgent).ok());
  net.run();
  ASSERT_GE(order.size(), 40U);
  EXPECT_EQ(std::count(order.begin(), order.begin() + 8, Carrier::kStream), 8);
  EXPECT_EQ(std::count(order.begin() + 8, order.begin() + 40, Carrier::kStream), 16);
}

TEST(StreamMessage, AFullStreamHoldsUpNoDatagrams) {
  Exchange net(2);
  net[0].set_stream(1, StreamState::kFull);
  ASSERT_TRUE(net.start(on_stream(net.send_options(300, 0, 1, 1))).ok());
  ASSERT_TRUE(net.start(net.send_options(300, 0, 1, 2)).ok());
  net.run(base::milliseconds(200));
  ASSERT_EQ(net.received(1).size(), 1U);
  EXPECT_EQ(net.received(1)[0].id.operation, 2U);
  EXPECT_EQ(net[0].holdup(), Holdup::kStream);
  net[0].set_stream(1, StreamState::kReady);
  net.run();
  ASSERT_EQ(net.received(1).size(), 2U);
  EXPECT_EQ(net.received(1)[1].whole, 300U);
  EXPECT_TRUE(net.dead_peers(0).empty() && net.dead_peers(1).empty());
}

// Control packets by datagram overtake what waits in the stream: nothing is sent twice.
TEST(StreamMessage, WhatIsLongOnItsWayIsNotSentAgain) {
  Exchange net(2);
  open_streams(net, 2);
  net.filter = [](TestPacket& packet, base::Duration& extra) {
    extra = is_streamed(packet) ? base::seconds(3) : base::Duration();
    return 1;
  };
  ASSERT_TRUE(net.start(on_stream(net.send_options(1000, 0, 1))).ok());
  net.run(base::seconds(20));
  ASSERT_EQ(net.sent(0).size(), 1U);
  EXPECT_EQ(net.sent(0)[0].transmitted, 1000U);
  EXPECT_TRUE(net.dead_peers(0).empty() && net.dead_peers(1).empty());
}

// A receiver that is behind keeps what it has room for, and has the rest sent later.
TEST(StreamMessage, WhatFoundNoRoomBeforeItWasExpectedComesAgain) {
  EndpointConfig config;
  config.limits.early_bytes = 256 * 1024;
  Exchange net(2, config);
  open_streams(net, 2);
  std::vector<SendOptions> messages;
  for (std::uint64_t operation = 1; operation <= 4; ++operation) {
    messages.push_back(on_stream(net.send_options(1000, 0, 1, operation)));
    ASSERT_TRUE(net[0].send(messages.back(), net.now()).ok());
  }
  net.run(base::milliseconds(300));
  EXPECT_LT(net[0].counters().data_sent, 4000U) << "the receiver asks to wait";
  for (const SendOptions& message : messages) {
    ASSERT_TRUE(net[1].expect(Exchange::receive_options(message), net.now()).ok());
  }
  net.run();
  ASSERT_EQ(net.received(1).size(), 4U);
  ASSERT_EQ(net.sent(0).size(), 4U);
  for (const ReceiveReport& report : net.received(1)) {
    EXPECT_EQ(report.outcome, Outcome::kEverything);
  }
}

TEST(StreamMessage, IsNotLostWithDatagramsThatAreLost) {
  Exchange net(2);
  open_streams(net, 2);
  net.filter = [random = base::RandomSequence(1)](TestPacket& packet, base::Duration&) mutable {
    return !is_streamed(packet) && random.next_unit() < 0.5 ? 0 : 1;  // control packets, too
  };
  for (std::uint64_t operation = 1; operation <= 20; ++operation) {
    ASSERT_TRUE(net.start(on_stream(net.send_options(100, 0, 1, operation))).ok());
  }
  net.run();
  ASSERT_EQ(net.sent(0).size(), 20U);
  EXPECT_EQ(net[0].counters().data_sent, 2000U);
}

// The sender learns how long the receiver takes to say that it has all.
TEST(StreamMessage, ALostStopIsAskedForSoon) {
  Exchange net(2);
  open_streams(net, 2);
  bool drops_stop = false;
  net.filter = [&](TestPacket& packet, base::Duration&) {
    const bool is_stop =
        packet.sent.route.is_control && packet.sent.control.type == wire::ControlType::kStop;
    return is_stop && std::exchange(drops_stop, false) ? 0 : 1;
  };
  for (std::uint64_t operation = 1; operation <= 20; ++operation) {
    ASSERT_TRUE(net.start(on_stream(net.send_options(100, 0, 1, operation))).ok());
    net.run(base::milliseconds(2));
  }
  drops_stop = true;
  ASSERT_TRUE(net.start(on_stream(net.send_options(100, 0, 1, 21))).ok());
  net.run(base::milliseconds(2));
  EXPECT_FALSE(drops_stop);
  EXPECT_EQ(net.sent(0).size(), 21U);
}

TEST(StreamMessage, ABrokenStreamEndsThePeerThatHasMessagesOnIt) {
  for (const bool is_sender : {true, false}) {
    Exchange net(2);
    open_streams(net, 2);
    net[0].set_stream(1, StreamState::kFull);
    ASSERT_TRUE(net.start(on_stream(net.send_options(300, 0, 1))).ok());
    net.run(base::milliseconds(1));
    const std::uint16_t survivor = is_sender ? 0 : 1;
    net[survivor].set_stream(1 - survivor, StreamState::kClosed);
    net[survivor].on_stream_lost(1 - survivor, net.now());
    net.run(base::milliseconds(1));
    EXPECT_EQ(net.dead_peers(survivor).size(), 1U);
  }
}

TEST(StreamMessage, ABrokenStreamWithoutMessagesHarmsNobody) {
  Exchange net(2);
  open_streams(net, 2);
  EXPECT_TRUE(net[0].has_all_streams());
  ASSERT_TRUE(net.start(net.send_options(300, 0, 1)).ok());
  net[0].set_stream(1, StreamState::kClosed);
  net[0].on_stream_lost(1, net.now());
  EXPECT_FALSE(net[0].has_stream(1) || net[0].has_all_streams());
  net.run();
  EXPECT_EQ(net.received(1).size(), 1U);
  EXPECT_TRUE(net.dead_peers(0).empty());
}

// Peers whose packets all travel over a stream.

void use_streams(Exchange& net, std::uint16_t ranks) {
  open_streams(net, ranks);
  for (std::uint16_t a = 0; a < ranks; ++a) {
    for (std::uint16_t b = 0; b < ranks; ++b) {
      net[a].use_stream(b);
    }
  }
}

TEST(StreamPeer, EverythingTakesTheStreamAndNoCreditIsGranted) {
  Exchange net(2);
  use_streams(net, 2);
  std::uint32_t credits = 0;
  net.filter = [&](TestPacket& packet, base::Duration&) {
    EXPECT_TRUE(is_streamed(packet));
    credits += is_credit(packet) ? 1 : 0;
    return 1;
  };
  ASSERT_TRUE(net.start(net.send_options(5000, 0, 1)).ok());
  net.run();
  EXPECT_LE(credits, 1U);
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
  net[0].set_stream(1, StreamState::kFull);
  ASSERT_TRUE(net.start(net.send_options(300, 0, 1)).ok());
  ASSERT_TRUE(net.start(net.send_options(300, 0, 2, 2)).ok());
  net.run(base::milliseconds(20));
  EXPECT_TRUE(net.received(1).empty());
  ASSERT_EQ(net.received(2).size(), 1U);
  net[0].set_stream(1, StreamState::kReady);
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
