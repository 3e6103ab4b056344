// SPDX-License-Identifier: Apache-2.0
#include "transport/send_lines.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace spillway::transport {
namespace {

constexpr std::uint32_t kCredit = 1000;

struct Lines : testing::Test {
  Peer& add_peer() {
    const auto rank = static_cast<std::uint16_t>(peers.size());
    return peers.emplace_back(rank, 1U, PathConfig{}, CongestionConfig{}, kCredit);
  }
  OutgoingMessage& join(Peer& peer, std::uint8_t priority) {
    OutgoingMessage& message = messages.emplace_back();
    message.peer = &peer;
    message.packets = 1;
    message.priority = priority;
    message.birth = messages.size();
    lines.join(message);
    return message;
  }
  // Returns the message that sends a packet next; a burst is one packet.
  OutgoingMessage* send_one() {
    Peer* peer = lines.front();
    if (peer == nullptr) {
      return nullptr;
    }
    OutgoingMessage* message = peer->line.front();
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
  SendLines lines;
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
  lines.unblock(peer);  // without anything having changed
  EXPECT_EQ(send_one(), &goes);
  ASSERT_TRUE(peer.balance.on_granted(kCredit + 1));
  lines.unblock(peer);
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

}  // namespace
}  // namespace spillway::transport
