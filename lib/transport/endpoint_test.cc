// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <optional>
#include <set>

#include "base/random.h"
#include "transport/endpoint.h"
#include "transport/exchange_testing.h"

namespace spillway::transport {

namespace {

bool is_data(const TestPacket& packet) {
  return !packet.sent.route.is_control;
}
bool is_control(const TestPacket& packet, wire::ControlType type) {
  return !is_data(packet) && packet.sent.control.type == type;
}

// Drops each packet that `chosen` picks with this probability.
Exchange::Filter random_loss(double share, std::uint64_t seed,
                             std::function<bool(const TestPacket&)> chosen) {
  return [=, random = base::RandomSequence(seed)](TestPacket& packet, base::Duration&) mutable {
    return chosen(packet) && random.next_unit() < share ? 0 : 1;
  };
}

TEST(Endpoint, DeliversEverythingOnACleanNetwork) {
  Exchange net(2);
  ASSERT_TRUE(net.start(net.send_options(1000, 0, 1)).ok());
  net.run();
  ASSERT_EQ(net.received(1).size(), 1U);
  EXPECT_EQ(net.received(1)[0].outcome, Outcome::kEverything);
  EXPECT_EQ(net.received(1)[0].whole, 1000U);
  ASSERT_EQ(net.sent(0).size(), 1U);
  EXPECT_EQ(net.sent(0)[0].transmitted, 1000U);  // nothing is retransmitted
  EXPECT_EQ(net.sent(0)[0].delivered, 1000U);
}

// Only its sender knows how long it is: here probes tell, as records carry no payload.
TEST(Endpoint, AMessageMayBeShorterThanExpected) {
  for (const int period : {INT_MAX, 7, 3}) {
    Exchange net(2);
    int packets = 0;
    net.filter = [&](TestPacket& packet, base::Duration&) {
      return !packet.sent.route.is_control && ++packets % period == 0 ? 0 : 1;
    };
    for (std::uint64_t operation = 1; operation <= 3; ++operation) {
      SendOptions sent = net.send_options(37, 0, 1, operation);
      sent.loss.loss_bound_ppm = 0;
      ReceiveOptions expected = Exchange::receive_options(sent);
      expected.packets = 100;
      expected.may_be_shorter = true;
      ASSERT_TRUE(net[1].expect(expected, net.now()).ok());
      ASSERT_TRUE(net[0].send(sent, net.now()).ok());
      net.run();
    }
    ASSERT_EQ(net.received(1).size(), 3U);
    for (const ReceiveReport& report : net.received(1)) {
      EXPECT_EQ(report.outcome, Outcome::kEverything);
      EXPECT_EQ(report.packets, 37U);
      EXPECT_EQ(report.planes.size(), 37U);
    }
    EXPECT_EQ(net.sent(0).size(), 3U);
    EXPECT_EQ(net[1].counters().contradicting, 0U);
  }
}

TEST(Endpoint, OnePacketMessagesWork) {
  Exchange net(2);
  ASSERT_TRUE(net.start(net.send_options(1, 0, 1)).ok());
  net.run();
  ASSERT_EQ(net.sent(0).size(), 1U);
  EXPECT_EQ(net.received(1)[0].outcome, Outcome::kEverything);
}

TEST(Endpoint, LossWithinTheBudgetIsNotRepaired) {
  Exchange net(2);
  net.filter = [](TestPacket& packet, base::Duration&) {
    return is_data(packet) && packet.sent.data.packet % 200 == 7 ? 0 : 1;
  };
  ASSERT_TRUE(net.start(net.send_options(1000, 0, 1)).ok());
  net.run();
  ASSERT_EQ(net.received(1).size(), 1U);
  const ReceiveReport& report = net.received(1)[0];
  EXPECT_EQ(report.outcome, Outcome::kWithinBudget);
  EXPECT_EQ(report.missing(), 5U);
  for (std::uint32_t packet = 0; packet < 1000; ++packet) {
    EXPECT_EQ(report.planes[packet], packet % 200 == 7 ? 0 : Exchange::kPlanes);
  }
  EXPECT_EQ(net.sent(0)[0].transmitted, 1000U);
}

TEST(Endpoint, LossAboveTheBudgetIsRepairedDownToIt) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Exchange net(2);
    net.filter = random_loss(0.2, seed, [](const TestPacket&) { return true; });
    ASSERT_TRUE(net.start(net.send_options(2000, 0, 1)).ok());
    net.run();
    ASSERT_EQ(net.received(1).size(), 1U) << seed;
    EXPECT_LE(net.received(1)[0].missing(), 20U) << seed;
    ASSERT_EQ(net.sent(0).size(), 1U) << seed;
    EXPECT_LT(net.sent(0)[0].transmitted, 3200U) << seed;
  }
}

TEST(Endpoint, BoundZeroDeliversEverythingUnderHeavyLoss) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Exchange net(2);
    net.filter = random_loss(0.5, seed, [](const TestPacket&) { return true; });
    SendOptions options = net.send_options(500, 0, 1);
    options.loss.loss_bound_ppm = 0;
    ASSERT_TRUE(net.start(options).ok());
    net.run(base::seconds(20));
    ASSERT_EQ(net.received(1).size(), 1U) << seed;
    EXPECT_EQ(net.received(1)[0].outcome, Outcome::kEverything) << seed;
  }
}

TEST(Endpoint, ImportantPacketsArriveEvenWhereTheBudgetWouldForgiveThem) {
  Exchange net(2);
  std::vector<std::uint8_t> importance(1000, 0);
  for (std::size_t packet : {3, 500, 999}) {
    importance[packet] = SPILLWAY_IMPORTANCE_REQUIRED;
  }
  std::map<int, int> tries;
  net.filter = [&](TestPacket& packet, base::Duration&) {
    const bool required =
        is_data(packet) && packet.sent.data.importance == SPILLWAY_IMPORTANCE_REQUIRED;
    return required && tries[packet.sent.data.packet]++ < 3 ? 0 : 1;
  };
  SendOptions options = net.send_options(1000, 0, 1);
  options.packet_importance = importance;
  ASSERT_TRUE(net.start(options).ok());
  net.run();
  ASSERT_EQ(net.received(1).size(), 1U);
  const ReceiveReport& report = net.received(1)[0];
  EXPECT_EQ(report.important_expected, 3U);
  EXPECT_EQ(report.important_delivered, 3U);
  EXPECT_EQ(report.planes[500], Exchange::kPlanes);
}

TEST(Endpoint, ImportantPacketsAreRepairedFirst) {
  Exchange net(2);
  std::vector<std::uint8_t> importance(300, 2);
  importance[299] = 7;
  importance[7] = 5;
  std::vector<int> retransmits;
  net.filter = [&](TestPacket& packet, base::Duration&) {
    if (!is_data(packet)) {
      return 1;
    }
    if (packet.sent.data.retransmit) {
      retransmits.push_back(packet.sent.data.packet);
    }
    return packet.sent.data.retransmit ? 1 : 0;  // the whole first pass is lost
  };
  SendOptions options = net.send_options(300, 0, 1);
  options.packet_importance = importance;
  ASSERT_TRUE(net.start(options).ok());
  net.run();
  ASSERT_GE(retransmits.size(), 297U);
  EXPECT_EQ(retransmits[0], 299);
  EXPECT_EQ(retransmits[1], 7);
}

TEST(Endpoint, TrimmedPacketsCountOnlyWithEnoughPlanes) {
  for (const std::uint8_t min_planes : {1, 4}) {
    Exchange net(2);
    net.filter = [](TestPacket& packet, base::Duration&) {
      if (is_data(packet) && !packet.sent.data.retransmit) {
        packet.planes = 3;
      }
      return 1;
    };
    SendOptions options = net.send_options(400, 0, 1);
    options.loss.min_planes = min_planes;
    ASSERT_TRUE(net.start(options).ok());
    net.run();
    ASSERT_EQ(net.received(1).size(), 1U);
    const ReceiveReport& report = net.received(1)[0];
    EXPECT_GE(report.delivered, 396U);
    if (min_planes == 1) {
      EXPECT_EQ(report.trimmed(), 400U);
      EXPECT_EQ(net.sent(0)[0].transmitted, 400U);
    } else {
      EXPECT_GE(report.whole, 396U);  // retransmitted, whole
      EXPECT_EQ(report.trimmed(), 0U);
    }
  }
}

TEST(Endpoint, DuplicatesAndReorderingChangeNothing) {
  Exchange net(2);
  base::RandomSequence random(3);
  net.filter = [&](TestPacket&, base::Duration& extra) {
    extra = base::nanoseconds(static_cast<std::int64_t>(random.next_below(50'000)));
    return 1 + static_cast<int>(random.next_below(3));
  };
  SendOptions options = net.send_options(1000, 0, 1);
  options.loss.loss_bound_ppm = 0;
  ASSERT_TRUE(net.start(options).ok());
  net.run();
  ASSERT_EQ(net.received(1).size(), 1U);
  EXPECT_EQ(net.received(1)[0].delivered, 1000U);
  EXPECT_GT(net[1].counters().duplicate, 300U);
  EXPECT_GT(net[0].counters().replayed, 0U);
}

// The first three control packets of each type, in every combination of types, are lost.
TEST(Endpoint, EveryCombinationOfLostControlPacketsEnds) {
  const std::array types = {wire::ControlType::kProbe, wire::ControlType::kStop,
                            wire::ControlType::kBitmap, wire::ControlType::kCredit};
  for (unsigned mask = 0; mask < 64; ++mask) {
    Exchange net(2);
    std::array<int, 8> lost{};
    net.filter = [&](TestPacket& packet, base::Duration&) {
      for (unsigned i = 0; i < types.size(); ++i) {
        if ((mask >> i & 1) != 0 && is_control(packet, types[i])) {
          return lost[i]++ < 3 ? 0 : 1;
        }
      }
      if (is_data(packet) && !packet.sent.data.retransmit) {
        const bool first = (mask & 16) != 0 && lost[4]++ == 0;
        const bool last = (mask & 32) != 0 && packet.sent.data.last;
        return first || last || packet.sent.data.packet % 10 == 3 ? 0 : 1;
      }
      return 1;
    };
    ASSERT_TRUE(net.start(net.send_options(600, 0, 1)).ok());
    net.run();
    ASSERT_EQ(net.received(1).size(), 1U) << mask;
    EXPECT_LE(net.received(1)[0].missing(), 6U) << mask;
    ASSERT_EQ(net.sent(0).size(), 1U) << mask;
    EXPECT_NE(net.sent(0)[0].outcome, Outcome::kPeerDead) << mask;
  }
}

TEST(Endpoint, AProbeWithDataInFlightCausesNoRepeats) {
  Exchange net(2);
  net.delay = base::milliseconds(3);  // far longer than the first probe's wait
  ASSERT_TRUE(net.start(net.send_options(200, 0, 1)).ok());
  net.run();
  ASSERT_EQ(net.sent(0).size(), 1U);
  EXPECT_EQ(net.sent(0)[0].transmitted, 200U);
}

TEST(Endpoint, WhatIsMissingBehindTheLastPacketIsSaidUnasked) {
  Exchange net(2);
  net.delay = base::milliseconds(3);
  net.filter = [](TestPacket& packet, base::Duration&) {
    if (is_control(packet, wire::ControlType::kProbe)) {
      return packet.sent.control.probe.all_sent ? 0 : 1;  // nobody asks
    }
    const wire::DataStamp& data = packet.sent.data;
    return is_data(packet) && data.packet == 42 && !data.retransmit ? 0 : 1;
  };
  SendOptions options = net.send_options(100, 0, 1);
  options.loss.loss_bound_ppm = 0;
  ASSERT_TRUE(net.start(options).ok());
  net.run();
  ASSERT_EQ(net.received(1).size(), 1U);
  EXPECT_EQ(net.received(1)[0].outcome, Outcome::kEverything);
  EXPECT_LE(net.sent(0)[0].transmitted, 102U);  // the missing packet, and one in case
}

TEST(Endpoint, WhatAnotherPathDelaysIsNotTakenForMissing) {
  Exchange net(2);
  net.filter = [](TestPacket& packet, base::Duration& extra) {
    extra = base::microseconds(is_data(packet) && packet.sent.data.path % 3 == 0 ? 40 : 0);
    return 1;
  };
  SendOptions options = net.send_options(100, 0, 1);
  options.loss.loss_bound_ppm = 0;
  ASSERT_TRUE(net.start(options).ok());
  net.run();
  ASSERT_EQ(net.sent(0).size(), 1U);
  EXPECT_EQ(net.sent(0)[0].transmitted, 100U);
}

TEST(Endpoint, AMessageThatIsExpectedLateStillArrives) {
  Exchange net(2);
  const SendOptions options = net.send_options(300, 0, 1);
  ASSERT_TRUE(net[0].send(options, net.now()).ok());
  net.run(base::milliseconds(400));
  EXPECT_TRUE(net.received(1).empty());
  EXPECT_GT(net[1].counters().early, 0U);
  EXPECT_TRUE(net.dead_peers(0).empty());  // silent about the message, but alive
  ASSERT_TRUE(net[1].expect(Exchange::receive_options(options), net.now()).ok());
  net.run();
  ASSERT_EQ(net.received(1).size(), 1U);
  EXPECT_GE(net.received(1)[0].delivered, 297U);
}

TEST(Endpoint, ALateSenderIsNotTakenForDead) {
  Exchange net(2);
  const SendOptions options = net.send_options(300, 0, 1);
  ASSERT_TRUE(net[1].expect(Exchange::receive_options(options), net.now()).ok());
  net.run(base::seconds(4));
  EXPECT_TRUE(net.dead_peers(1).empty());
  ASSERT_TRUE(net[0].send(options, net.now()).ok());
  net.run();
  ASSERT_EQ(net.received(1).size(), 1U);
}

TEST(Endpoint, ASilentPeerIsNamedDeadWithinTwoSeconds) {
  for (const std::uint16_t killed : {0, 1}) {
    const std::uint16_t survivor = killed == 0 ? 1 : 0;
    Exchange net(2);
    SendOptions options = net.send_options(60'000, 0, 1);
    ASSERT_TRUE(net.start(options).ok());
    net.run(base::milliseconds(5));
    net.kill(killed);
    net.run(base::seconds(2));
    EXPECT_EQ(net.dead_peers(survivor), std::vector<std::uint16_t>{killed});
    if (survivor == 0) {
      ASSERT_EQ(net.sent(0).size(), 1U);
      EXPECT_EQ(net.sent(0)[0].outcome, Outcome::kPeerDead);
    } else {
      ASSERT_EQ(net.received(1).size(), 1U);
      EXPECT_EQ(net.received(1)[0].outcome, Outcome::kPeerDead);
    }
    EXPECT_FALSE(net[survivor].send(net.send_options(1, survivor, killed, 2), net.now()).ok());
  }
}

TEST(Endpoint, APeerThatWasNeverThereIsNamedDead) {
  Exchange net(2);
  net.kill(1);
  ASSERT_TRUE(net[0].send(net.send_options(10, 0, 1), net.now()).ok());
  net.run(base::seconds(2));
  EXPECT_EQ(net.dead_peers(0), std::vector<std::uint16_t>{1});
}

TEST(Endpoint, ADeadlineEndsAMessageAndSaysSo) {
  Exchange net(2);
  net.filter = [](TestPacket& packet, base::Duration&) {
    return is_data(packet) && packet.sent.data.packet % 2 == 0 ? 0 : 1;  // half never arrives
  };
  const SendOptions options = net.send_options(400, 0, 1);
  ReceiveOptions receive = Exchange::receive_options(options);
  receive.deadline = base::milliseconds(20);
  ASSERT_TRUE(net[1].expect(receive, net.now()).ok());
  ASSERT_TRUE(net[0].send(options, net.now()).ok());
  net.run(base::milliseconds(40));
  ASSERT_EQ(net.received(1).size(), 1U);
  EXPECT_EQ(net.received(1)[0].outcome, Outcome::kDeadline);
  EXPECT_EQ(net.received(1)[0].delivered, 200U);
  ASSERT_EQ(net.sent(0).size(), 1U);
  EXPECT_EQ(net.sent(0)[0].outcome, Outcome::kDeadline);
}

TEST(Endpoint, ACancelledMessageStopsItsSender) {
  Exchange net(2);
  const SendOptions options = net.send_options(60'000, 0, 1);
  ASSERT_TRUE(net.start(options).ok());
  net.run(base::milliseconds(2));
  net[1].cancel(options.id, net.now());
  net.run();
  ASSERT_EQ(net.sent(0).size(), 1U);
  EXPECT_EQ(net.sent(0)[0].outcome, Outcome::kCancelled);
  EXPECT_LT(net.sent(0)[0].transmitted, 10'000U);
}

TEST(Endpoint, UrgentMessagesFinishFirst) {
  Exchange net(2);
  SendOptions slow = net.send_options(2000, 0, 1, 1);
  SendOptions urgent = net.send_options(2000, 0, 1, 2);
  slow.priority = 1;
  urgent.priority = 6;
  ASSERT_TRUE(net.start(slow).ok());
  ASSERT_TRUE(net.start(urgent).ok());
  net.run();
  ASSERT_EQ(net.received(1).size(), 2U);
  EXPECT_EQ(net.received(1)[0].id.operation, 2U);
}

TEST(Endpoint, ForeignAndStalePacketsAreCountedAndChangeNothing) {
  Exchange net(2);
  const SendOptions options = net.send_options(100, 0, 1);
  ASSERT_TRUE(net.start(options).ok());
  DataArrival arrival;
  arrival.stamp.message = options.id;
  arrival.stamp.destination = 1;
  arrival.sent_bytes = 1000;
  arrival.planes = 16;
  arrival.stamp.job = 9;
  net[1].on_data(arrival, net.now());
  arrival.stamp.job = 0;
  arrival.stamp.epoch = 4;
  net[1].on_data(arrival, net.now());
  arrival.stamp.epoch = 0;
  arrival.stamp.message.source = 77;
  net[1].on_data(arrival, net.now());
  arrival.stamp.message.source = 0;
  arrival.stamp.destination = 0;
  net[1].on_data(arrival, net.now());
  arrival.stamp.destination = 1;
  arrival.stamp.message.source = 0;
  arrival.stamp.packet = 100;
  net[1].on_data(arrival, net.now());
  arrival.stamp.packet = 0;
  arrival.stamp.path = 200;
  net[1].on_data(arrival, net.now());
  arrival.stamp.path = 0;
  arrival.stamp.message.operation = 9;
  net[1].on_data(arrival, net.now());
  const EndpointCounters& counters = net[1].counters();
  EXPECT_EQ(counters.foreign_job, 1U);
  EXPECT_EQ(counters.other_epoch, 1U);
  EXPECT_EQ(counters.unknown_peer, 1U);
  EXPECT_EQ(counters.misaddressed, 1U);
  EXPECT_EQ(counters.contradicting, 2U);
  EXPECT_EQ(counters.early, 1U);
  EXPECT_EQ(counters.data_taken, 0U);
}

TEST(Endpoint, ReplayedPacketsOfAFinishedMessageChangeNothing) {
  Exchange net(2);
  std::vector<TestPacket> recorded;
  net.filter = [&](TestPacket& packet, base::Duration&) {
    recorded.push_back(packet);
    return 1;
  };
  ASSERT_TRUE(net.start(net.send_options(50, 0, 1)).ok());
  net.run();
  const std::uint64_t taken = net[1].counters().data_taken;
  const std::uint64_t control_taken = net[1].counters().control_taken;
  const std::vector<TestPacket> all = recorded;
  for (const TestPacket& packet : all) {
    net.replay(packet.sent.route.peer, packet);
  }
  net.run();
  EXPECT_EQ(net[1].counters().data_taken, taken);
  EXPECT_EQ(net[1].counters().control_taken, control_taken);
  EXPECT_GT(net[1].counters().replayed, 0U);
  EXPECT_EQ(net.received(1).size(), 1U);
  EXPECT_EQ(net.sent(0).size(), 1U);
}

TEST(Endpoint, ReplayedDataDoesNotKeepADeadPeerAlive) {
  Exchange net(2);
  std::optional<TestPacket> recorded;
  net.filter = [&](TestPacket& packet, base::Duration&) {
    if (!packet.sent.route.is_control && !recorded) {
      recorded = packet;
    }
    return 1;
  };
  ASSERT_TRUE(net.start(net.send_options(60'000, 0, 1)).ok());
  net.run(base::milliseconds(5));
  net.kill(0);
  for (int i = 0; i < 20; ++i) {
    net.run(base::milliseconds(100));
    net.replay(1, *recorded);
  }
  EXPECT_EQ(net.dead_peers(1), std::vector<std::uint16_t>{0});
}

TEST(Endpoint, AMessageCannotBeExpectedTwice) {
  Exchange net(2);
  const SendOptions options = net.send_options(10, 0, 1);
  ASSERT_TRUE(net.start(options).ok());
  EXPECT_FALSE(net[1].expect(Exchange::receive_options(options), net.now()).ok());
  net.run();
  EXPECT_FALSE(net[1].expect(Exchange::receive_options(options), net.now()).ok());
}

TEST(Endpoint, TablesAreBounded) {
  EndpointConfig config;
  config.limits = {.peers = 1, .outgoing_messages = 3, .incoming_messages = 3, .finished_kept = 2};
  Exchange net(2, config);
  EXPECT_EQ(net[0].add_peer(9, net.now()).code(), base::StatusCode::kLimitExceeded);
  for (std::uint32_t operation = 0; operation < 3; ++operation) {
    ASSERT_TRUE(net.start(net.send_options(10, 0, 1, operation)).ok());
  }
  EXPECT_EQ(net[0].send(net.send_options(10, 0, 1, 4), net.now()).code(),
            base::StatusCode::kLimitExceeded);
  EXPECT_EQ(
      net[1].expect(Exchange::receive_options(net.send_options(10, 0, 1, 4)), net.now()).code(),
      base::StatusCode::kLimitExceeded);
  net.run();
  EXPECT_EQ(net.received(1).size(), 3U);
  // A forgotten message is refused, not taken for a new one.
  EXPECT_FALSE(
      net[1].expect(Exchange::receive_options(net.send_options(10, 0, 1, 0)), net.now()).ok());
  ASSERT_TRUE(net.start(net.send_options(10, 0, 1, 4)).ok());
  net.run();
  EXPECT_EQ(net.received(1).size(), 4U);
}

TEST(Endpoint, ThatKeepsNoEndedMessageStillEndsThem) {
  EndpointConfig config;
  config.limits.finished_kept = 0;
  Exchange net(2, config);
  ASSERT_TRUE(net.start(net.send_options(100, 0, 1)).ok());
  net.run();
  ASSERT_EQ(net.received(1).size(), 1U);
  EXPECT_EQ(net.received(1)[0].outcome, Outcome::kEverything);
  EXPECT_EQ(net.sent(0).size(), 1U);
}

TEST(Endpoint, AFloodOfUnknownMessagesDoesNotGrowMemory) {
  Exchange net(2);
  ASSERT_TRUE(net.start(net.send_options(10, 0, 1)).ok());
  const auto flood = [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t i = begin; i < end; ++i) {
      DataArrival arrival;
      arrival.stamp.message = {.operation = 1000 + i, .source = 0};
      arrival.stamp.destination = 1;
      arrival.sent_bytes = 1000;
      arrival.planes = 16;
      net[1].on_data(arrival, net.now());
      wire::ControlPacket probe;
      probe.type = wire::ControlType::kProbe;
      probe.destination = 1;
      probe.message = {.operation = 1000 + i, .source = 0};
      probe.sequence = i + 1;
      probe.probe.packets = 65536;
      net[1].on_control(probe, net.now());
    }
  };
  flood(0, 2000);
  const std::size_t before = net[1].memory_bytes();
  flood(2000, 100'000);
  EXPECT_LE(net[1].memory_bytes(), before);
}

TEST(Endpoint, BadArgumentsGetASentence) {
  Exchange net(2);
  SendOptions options = net.send_options(0, 0, 1);
  EXPECT_EQ(net[0].send(options, net.now()).code(), base::StatusCode::kInvalidArgument);
  options.packets = 70'000;
  EXPECT_NE(net[0].send(options, net.now()).message().find("split"), std::string::npos);
  options = net.send_options(10, 0, 5);
  EXPECT_NE(net[0].send(options, net.now()).message().find("add_peer"), std::string::npos);
  options = net.send_options(10, 1, 0);
  EXPECT_FALSE(net[0].send(options, net.now()).ok());
  ReceiveOptions receive = Exchange::receive_options(net.send_options(10, 0, 1));
  receive.loss.min_planes = 17;
  EXPECT_NE(net[1].expect(receive, net.now()).message().find("min_planes"), std::string::npos);
}

// A sender without credit, driven by hand: it hears that packets are missing and, before it may
// retransmit them, that they are forgiven.
struct ForgivenRepeats : testing::Test {
  static constexpr std::uint32_t kPackets = 4;

  static EndpointConfig config() {
    EndpointConfig made;
    made.exchange.unsolicited = made.exchange.packet * kPackets;
    return made;
  }
  wire::ControlPacket answer(wire::ControlType type) {
    wire::ControlPacket packet{};
    packet.type = type;
    packet.source = 1;
    packet.message = options.id;
    packet.sequence = ++answers;
    packet.generation = generation;
    return packet;
  }
  void say_all_are_missing(std::uint32_t allowed) {
    wire::ControlPacket packet = answer(wire::ControlType::kBitmap);
    packet.bitmap.range.count = kPackets;
    packet.bitmap.range.bits.fill(0);
    packet.bitmap.missing = kPackets;
    packet.bitmap.allowed = allowed;
    sender.on_control(packet, now);
  }
  void send_all() {
    Transmission out;
    while (sender.poll_transmit(now, out)) {
      data += out.route.is_control ? 0 : 1;
      generation = out.route.is_control ? out.control.generation : generation;
    }
  }

  Exchange net{2, config()};
  Endpoint& sender = net[0];
  base::Instant now = net.now();
  SendOptions options = net.send_options(kPackets, 0, 1);
  std::uint32_t data = 0;
  std::uint32_t generation = 0;  // of the latest PROBE
  std::uint64_t answers = 0;
};

TEST_F(ForgivenRepeats, AreNotSentOnceThereIsCredit) {
  ASSERT_TRUE(sender.send(options, now).ok());
  send_all();
  EXPECT_EQ(data, kPackets);
  say_all_are_missing(/*allowed=*/0);
  send_all();
  EXPECT_EQ(data, kPackets);  // nothing may go
  EXPECT_EQ(sender.holdup(), Holdup::kCredit);
  const std::uint32_t first_generation = generation;
  for (int i = 0; i < 20 && generation == first_generation; ++i) {
    now = sender.next_timeout();
    sender.on_timeout(now);
    send_all();
  }
  ASSERT_NE(generation, first_generation);
  say_all_are_missing(/*allowed=*/kPackets);
  EXPECT_EQ(sender.holdup(), Holdup::kReport);
  wire::ControlPacket credit = answer(wire::ControlType::kCredit);
  credit.credit.granted = kPackets * 10;
  sender.on_control(credit, now);
  send_all();
  EXPECT_EQ(data, kPackets);
}

TEST(Endpoint, CreditKeepsAnIncastAtTheReceiversRate) {
  EndpointConfig config;
  config.exchange.receive_rate = base::gigabits_per_second(8);  // 1,000 bytes take a microsecond
  config.exchange.unsolicited = base::bytes(4000);
  Exchange net(17, config);
  std::map<std::int64_t, int> arrivals;  // per 100 us
  constexpr int kDepth = 512;            // packets that may be granted ahead of the rate
  net.filter = [&](TestPacket& packet, base::Duration&) {
    if (is_data(packet)) {
      ++arrivals[net.now().since_zero().count() / 100'000];
    }
    return 1;
  };
  for (std::uint16_t from = 1; from < 17; ++from) {
    ASSERT_TRUE(net.start(net.send_options(500, from, 0)).ok());
  }
  net.run();
  ASSERT_EQ(net.received(0).size(), 16U);
  // 1,066 bytes on the wire at 8 Gb/s: 93.8 packets per 100 us.
  int busy = 0;
  double all = 0;
  for (const auto& [interval, packets] : arrivals) {
    all += packets;
    EXPECT_LE(all, 94.0 * static_cast<double>(interval + 1) + kDepth) << interval;
    busy += packets >= 80 ? 1 : 0;
  }
  EXPECT_GE(busy, 70);
}

}  // namespace

// Tests what an endpoint reports as its holdup, and counts as retransmitted or received in vain.

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
  EXPECT_EQ(net[0].holdup(), Holdup::kReport);
  net.filter = [](TestPacket&, base::Duration&) { return 1; };
  net.run();
  EXPECT_EQ(net[0].holdup(), Holdup::kIdle);
  EXPECT_EQ(net[1].holdup(), Holdup::kIdle);
}

TEST(Holdup, AMessageLongerThanWhatMayGoUnaskedWaitsForCredit) {
  EndpointConfig config;
  config.exchange.unsolicited = base::bytes(4'000);
  Exchange net(2, config);
  ASSERT_TRUE(net.start(net.send_options(1'000, 0, 1)).ok());
  EXPECT_LT(drain(net[0], net.now()), 1'000U);
  EXPECT_EQ(net[0].holdup(), Holdup::kCredit);
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

// Tests a rank's leaving: it needs nothing any more, and has not said what it received.

namespace {

TEST(Leave, EndsWhatIsSentToTheRankWithoutSayingThatItArrived) {
  Exchange net(2);
  ASSERT_TRUE(net[0].send(net.send_options(1, 0, 1, /*operation=*/1), net.now()).ok());
  net.run(base::milliseconds(1));  // rank 1 does not expect it
  net[1].leave(1, wire::FailureCause::kClosed);
  net.run(base::milliseconds(500));
  ASSERT_EQ(net.sent(0).size(), 1U);
  EXPECT_EQ(net.sent(0)[0].outcome, Outcome::kEverything);
  EXPECT_EQ(net.sent(0)[0].delivered, 0U);
  ASSERT_TRUE(net[0].send(net.send_options(1, 0, 1, /*operation=*/2), net.now()).ok());
  net.run(base::milliseconds(1));
  ASSERT_EQ(net.sent(0).size(), 2U);
  EXPECT_EQ(net.sent(0)[1].delivered, 0U);
}

// The event that rank 0 of two gets when rank 1 has left.
std::optional<PeerFailed> told_of(Endpoint& leaver, wire::FailureCause cause, std::uint16_t culprit,
                                  const wire::Mismatch* mismatch = nullptr) {
  EndpointConfig config;
  Endpoint other(config);
  EXPECT_TRUE(other.add_peer(1, base::Instant()).ok());
  leaver.leave(culprit, cause, mismatch);
  Transmission sent;
  while (leaver.poll_transmit(base::Instant(), sent)) {
    other.on_control(sent.control, base::Instant());
  }
  Event event;
  while (other.poll_event(event)) {
    if (const auto* failed = std::get_if<PeerFailed>(&event)) {
      return *failed;
    }
  }
  return std::nullopt;
}

TEST(Leave, SaysWhichOperationsAreOver) {
  EndpointConfig config;
  config.rank = 1;
  Endpoint leaver(config);
  ASSERT_TRUE(leaver.add_peer(0, base::Instant()).ok());
  leaver.retire_before(17);
  const std::optional<PeerFailed> told = told_of(leaver, wire::FailureCause::kClosed, 1);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->from, 1);
  EXPECT_EQ(told->finished_before, 17U);
}

TEST(Leave, TellsBothCallsWhereTheyDiffer) {
  EndpointConfig config;
  config.rank = 1;
  Endpoint leaver(config);
  ASSERT_TRUE(leaver.add_peer(0, base::Instant()).ok());
  wire::Mismatch mismatch;
  mismatch.operation = 5;
  mismatch.calls[0].rank = 1;
  mismatch.calls[0].bytes = 7;
  std::copy_n("barrier", 7, mismatch.calls[0].text.begin());
  const std::optional<PeerFailed> told =
      told_of(leaver, wire::FailureCause::kMismatch, 2, &mismatch);
  ASSERT_TRUE(told.has_value());
  ASSERT_NE(told->mismatch, nullptr);
  EXPECT_EQ(told->culprit, 2);
  EXPECT_EQ(told->mismatch->operation, 5U);
  EXPECT_EQ(told->mismatch->calls[0].view(), "barrier");
  EXPECT_EQ(told->mismatch->calls[1].bytes, 0);
}

// A rank that left because another closed too early is not done.
TEST(Leave, BecauseOfAnotherEndsNothing) {
  Exchange net(2);
  ASSERT_TRUE(net[0].send(net.send_options(1, 0, 1, /*operation=*/1), net.now()).ok());
  net.run(base::milliseconds(1));
  net[1].leave(/*culprit=*/5, wire::FailureCause::kClosed);
  net.run(base::milliseconds(500));
  EXPECT_TRUE(net.sent(0).empty());
}

}  // namespace

}  // namespace spillway::transport
