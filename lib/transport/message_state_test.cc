// SPDX-License-Identifier: Apache-2.0
//
// Which state may follow which in the life of a message, and what its sender is owed.
#include <gtest/gtest.h>

#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "base/random.h"
#include "transport/exchange_testing.h"
#include "transport/message_table.h"
#include "transport/receiver.h"
#include "transport/sender.h"

namespace spillway::transport {
namespace {

// ------------------------------------------------------------------ states

template <typename State>
using Transitions = std::set<std::pair<State, State>>;

// Exactly these transitions are accepted; all others stop the program.
template <typename State>
void expect_exactly(unsigned states, const Transitions<State>& legal) {
  for (unsigned i = 0; i < states * states; ++i) {
    const auto from = static_cast<State>(i / states);
    const auto to = static_cast<State>(i % states);
    base::Tracked<State> state(from);
    if (legal.contains({from, to})) {
      EXPECT_TRUE(may_follow(from, to)) << i / states << " to " << i % states;
      state.enter(to);
      EXPECT_EQ(*state, to);
    } else {
      EXPECT_FALSE(may_follow(from, to)) << i / states << " to " << i % states;
      EXPECT_DEATH(state.enter(to), "check failed");
    }
  }
}

TEST(IncomingState, GoesFromExpectedToEndedAndEndsFromEverywhere) {
  using enum IncomingState;
  expect_exactly<IncomingState>(kIncomingStates, {{kFree, kExpected},
                                                  {kExpected, kArriving},
                                                  {kArriving, kLingering},
                                                  {kExpected, kEnded},
                                                  {kArriving, kEnded},
                                                  {kLingering, kEnded},
                                                  {kEnded, kFree}});
}

TEST(IncomingState, IsOpenBetweenFreeAndEnded) {
  IncomingMessage message;
  EXPECT_TRUE(message.is_free() && !message.is_open());
  for (const IncomingState open :
       {IncomingState::kExpected, IncomingState::kArriving, IncomingState::kLingering}) {
    message.state.enter(open);
    EXPECT_TRUE(message.is_open() && !message.is_free());
  }
  message.state.enter(IncomingState::kEnded);
  EXPECT_FALSE(message.is_open() || message.is_free());
}

TEST(OutgoingState, IsInLineOrWaits) {
  using enum OutgoingState;
  expect_exactly<OutgoingState>(kOutgoingStates, {{kWaiting, kQueued}, {kQueued, kWaiting}});
}

TEST(Owed, IsASetOfWhatWasNotSaid) {
  Owed owed;
  EXPECT_TRUE(owed.empty());
  owed.add(Owed::kStop);
  owed.add(Owed::kBitmap);
  owed.add(Owed::kBitmap);
  EXPECT_TRUE(owed.has(Owed::kStop) && owed.has(Owed::kBitmap) && !owed.has(Owed::kCredit));
  EXPECT_TRUE(owed.take(Owed::kStop));
  EXPECT_FALSE(owed.take(Owed::kStop));
  owed.remove(Owed::kBitmap);
  EXPECT_TRUE(owed.empty());
}

TEST(Owed, AQuestionBringsACredit) {
  Owed owed;
  owed.add(Owed::kPing);
  EXPECT_TRUE(owed.take(Owed::kCredit));
  EXPECT_TRUE(owed.take(Owed::kPing));
  EXPECT_TRUE(owed.empty());
}

// ------------------------------------------------------------------ lines of outgoing messages

constexpr std::uint32_t kCredit = 1000;

struct Lines : testing::Test {
  Peer& add_peer() {
    const auto rank = static_cast<std::uint16_t>(peers.size());
    return peers.emplace_back(rank, 1U, PathConfig{}, WindowConfig{}, base::bytes(1500), kCredit);
  }
  OutgoingMessage& join(Peer& peer, std::uint8_t priority, Carrier carrier = Carrier::kDatagrams) {
    OutgoingMessage& message = messages.emplace_back();
    message.peer = &peer;
    message.carrier = carrier;
    message.packets = 1;
    message.priority = priority;
    message.queue_number = messages.size();
    lines.join(message);
    return message;
  }
  // Returns the message that sends a packet next; a burst is one packet.
  OutgoingMessage* send_one() {
    SendLine* line = lines.front();
    if (line == nullptr) {
      return nullptr;
    }
    OutgoingMessage* message = line->messages.front();
    lines.rotate();
    return message;
  }
  static void use_up_credit(Peer& peer) {
    while (peer.balance.has_credit()) {
      peer.balance.on_sent();
    }
  }

  std::deque<Peer> peers;
  std::deque<OutgoingMessage> messages;
  SendScheduler lines;
};

TEST_F(Lines, MessagesToAPeerGoOneAfterTheOther) {
  Peer& peer = add_peer();
  OutgoingMessage& first = join(peer, 3);
  OutgoingMessage& second = join(peer, 3);
  EXPECT_EQ(send_one(), &first);
  EXPECT_EQ(send_one(), &first);
  lines.leave(first);
  EXPECT_EQ(send_one(), &second);
  lines.join(first);  // retransmissions of the older one come first
  EXPECT_EQ(send_one(), &first);
}

TEST_F(Lines, PeersOfOnePriorityTakeTurns) {
  OutgoingMessage& a = join(add_peer(), 3);
  OutgoingMessage& b = join(add_peer(), 3);
  EXPECT_EQ(send_one(), &a);
  EXPECT_EQ(send_one(), &b);
  EXPECT_EQ(send_one(), &a);
}

TEST_F(Lines, TheMostUrgentGoFirstWhateverTheirPeer) {
  Peer& peer = add_peer();
  OutgoingMessage& slow = join(peer, 1);
  OutgoingMessage& other = join(add_peer(), 3);
  EXPECT_EQ(send_one(), &other);
  OutgoingMessage& urgent = join(peer, 5);
  EXPECT_EQ(send_one(), &urgent);
  EXPECT_EQ(send_one(), &urgent);
  lines.leave(urgent);
  EXPECT_EQ(send_one(), &other);
  lines.leave(other);
  EXPECT_EQ(send_one(), &slow);
}

TEST_F(Lines, APeerWithoutCreditStepsAsideUntilItHasSome) {
  Peer& peer = add_peer();
  OutgoingMessage& waits = join(peer, 5);
  OutgoingMessage& goes = join(add_peer(), 3);
  use_up_credit(peer);
  EXPECT_EQ(send_one(), &goes);
  lines.unblock(peer.line(Carrier::kDatagrams));  // without anything having changed
  EXPECT_EQ(send_one(), &goes);
  ASSERT_TRUE(peer.balance.on_granted(kCredit + 1));
  lines.unblock(peer.line(Carrier::kDatagrams));
  EXPECT_EQ(send_one(), &waits);
  lines.leave(goes);
  lines.leave(waits);
  EXPECT_EQ(send_one(), nullptr);
}

TEST_F(Lines, ABlockedPeersLineMayEmptyAndFill) {
  Peer& peer = add_peer();
  OutgoingMessage& message = join(peer, 3);
  use_up_credit(peer);
  EXPECT_EQ(send_one(), nullptr);
  lines.leave(message);
  ASSERT_TRUE(peer.balance.on_granted(kCredit + 1));
  OutgoingMessage& next = join(peer, 2);
  EXPECT_EQ(send_one(), &next);
}

TEST_F(Lines, AStreamNeedsRoomAndNoCredit) {
  Peer& peer = add_peer();
  use_up_credit(peer);
  OutgoingMessage& message = join(peer, 3, Carrier::kStream);
  EXPECT_EQ(send_one(), nullptr);
  peer.stream = StreamState::kReady;
  lines.unblock(peer.line(Carrier::kStream));
  EXPECT_EQ(send_one(), &message);
  peer.stream = StreamState::kFull;
  EXPECT_EQ(send_one(), nullptr);
}

// ------------------------------------------------------------------ operations and messages that
// are over

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
  EXPECT_EQ(retired.range_count(), 1U);
  EXPECT_FALSE(retired.contains(0));
  retired.add(0);
  EXPECT_EQ(retired.range_count(), 0U);
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
