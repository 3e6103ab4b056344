// SPDX-License-Identifier: Apache-2.0
#include "transport/ended_messages.h"

#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "transport/exchange_testing.h"
#include "transport/retired_operations.h"

namespace spillway::transport {
namespace {

TEST(RetiredOperations, AreWhatWasNamedInWhateverOrder) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    base::RandomSequence random(seed);
    RetiredOperations retired;
    std::set<std::uint64_t> named;
    for (int i = 0; i < 500; ++i) {
      const std::uint64_t operation = random.next_below(600);
      if (i % 100 == 99) {
        retired.add_before(operation / 4);
        for (std::uint64_t before = 0; before < operation / 4; ++before) {
          named.insert(before);
        }
      } else {
        retired.add(operation);
        named.insert(operation);
      }
      for (std::uint64_t number = 0; number < 602; ++number) {
        ASSERT_EQ(retired.contains(number), named.contains(number)) << number;
      }
      ASSERT_TRUE(retired.floor() == 0 || named.contains(retired.floor() - 1));
      ASSERT_FALSE(named.contains(retired.floor()));
    }
  }
}

TEST(RetiredOperations, TakeNoRoomForAllThatEndBesideALateOne) {
  RetiredOperations retired;
  for (std::uint64_t operation = 1; operation < 100'000; ++operation) {
    retired.add(operation);
  }
  EXPECT_EQ(retired.run_count(), 1U);
  EXPECT_FALSE(retired.contains(0));
  retired.add(0);
  EXPECT_EQ(retired.run_count(), 0U);
  EXPECT_EQ(retired.floor(), 100'000U);
  EXPECT_TRUE(retired.is_used());
}

// Message `piece` of the operation, from rank 0 to rank 1.
SendOptions piece_of(const Exchange& net, std::uint32_t operation, std::uint16_t piece) {
  SendOptions options = net.send_options(10, 0, 1, operation);
  options.id.piece = piece;
  return options;
}

EndpointConfig small_tables() {
  EndpointConfig config;
  config.limits = {.peers = 1, .outgoing_messages = 4, .incoming_messages = 4, .finished_kept = 2};
  return config;
}

TEST(EndedMessages, OfAnOperationThatGoesOnDoNotFillTheTable) {
  Exchange net(2, small_tables());
  net[1].retire_before(0);
  for (std::uint16_t piece = 0; piece < 1000; ++piece) {
    ASSERT_TRUE(net.start(piece_of(net, 0, piece)).ok()) << piece;
    net.run();
  }
  EXPECT_EQ(net.received(1).size(), 1000U);
  // Each is still remembered.
  EXPECT_FALSE(net[1].expect(Exchange::receive_options(piece_of(net, 0, 5)), net.now()).ok());
  EXPECT_LT(net[1].memory_bytes(), 200'000U);
  net[1].retire(0);
  EXPECT_LT(net[1].memory_bytes(), 30'000U);
  EXPECT_FALSE(net[1].expect(Exchange::receive_options(piece_of(net, 0, 5)), net.now()).ok());
}

// However long ago the end was, and whatever has ended since.
TEST(EndedMessages, AreToldToASenderThatMissedTheirEnd) {
  Exchange net(2, small_tables());
  net[1].retire_before(0);
  bool is_deaf = true;
  SendOptions late = piece_of(net, 0, 7);
  late.loss.loss_bound_ppm = 200'000;
  net.filter = [&](TestPacket& packet, base::Duration&) {
    const bool is_lost = !packet.sent.route.is_control && packet.sent.data.message == late.id &&
                         packet.sent.data.packet == 3;
    const bool is_stop =
        packet.sent.route.is_control && packet.sent.control.message == late.id && packet.from == 1;
    return is_lost || (is_deaf && is_stop) ? 0 : 1;
  };
  ASSERT_TRUE(net.start(late).ok());
  net.run(base::milliseconds(50));
  ASSERT_EQ(net.received(1).size(), 1U);
  for (std::uint16_t piece = 8; piece < 60; ++piece) {
    ASSERT_TRUE(net.start(piece_of(net, 1, piece)).ok());
    net.run(base::milliseconds(5));
  }
  net[1].retire(1);
  is_deaf = false;
  net.run();
  ASSERT_EQ(net.sent(0).size(), 53U);
  EXPECT_EQ(net.sent(0).back().id, late.id);
  EXPECT_EQ(net.sent(0).back().outcome, Outcome::kWithinBudget);
  EXPECT_EQ(net.sent(0).back().delivered, 9U);
}

TEST(EndedMessages, OfOperationsThatAreOverAreAnsweredAsCancelled) {
  Exchange net(2, small_tables());
  net[1].retire_before(0);
  net[1].retire(5);  // before it was ever expected here
  ASSERT_TRUE(net[0].send(net.send_options(10, 0, 1, 5), net.now()).ok());
  net.run();
  ASSERT_EQ(net.sent(0).size(), 1U);
  EXPECT_EQ(net.sent(0)[0].outcome, Outcome::kCancelled);
  ASSERT_TRUE(net.start(net.send_options(10, 0, 1, 4)).ok());
  net.run();
  EXPECT_EQ(net.received(1).size(), 1U);
}

}  // namespace
}  // namespace spillway::transport
