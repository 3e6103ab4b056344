// SPDX-License-Identifier: Apache-2.0
#include "net/stream_greeting.h"

#include <gtest/gtest.h>

namespace spillway::net {
namespace {

using State = Greeting::State;

StreamIdentity rank_of_run(std::uint16_t rank, std::uint8_t run = 1, std::uint64_t epoch = 7) {
  StreamIdentity identity{.rank = rank, .epoch = epoch};
  identity.key.bytes[0] = run;
  return identity;
}

// Passes one side's bytes to the other, one at a time.
void talk(Greeting& from, Greeting& to) {
  const std::vector<std::uint8_t> words(from.reply().begin(), from.reply().end());
  from.sent(words.size());
  for (const std::uint8_t& byte : words) {
    to.take({&byte, 1});
  }
}

struct Ends {
  State connecting;
  State answering;
};
Ends greet(const StreamIdentity& connects, std::uint16_t to, const StreamIdentity& answers) {
  Greeting a = Greeting::connecting(connects, to, {1});
  Greeting b = Greeting::answering(answers, {2});
  for (int round = 0; round < 3; ++round) {
    talk(a, b);
    talk(b, a);
  }
  return {a.state(), b.state()};
}

TEST(StreamGreeting, RanksOfARunKnowEachOther) {
  Greeting a = Greeting::connecting(rank_of_run(3), 5, {1});
  Greeting b = Greeting::answering(rank_of_run(5), {2});
  talk(a, b);
  EXPECT_EQ(b.state(), State::kAwaitsProof);
  talk(b, a);
  EXPECT_EQ(a.state(), State::kDone);
  talk(a, b);
  EXPECT_EQ(b.state(), State::kDone);
  EXPECT_EQ(a.peer(), 5);
  EXPECT_EQ(b.peer(), 3);
  EXPECT_EQ(a.wanted() + b.wanted(), 0U);
}

TEST(StreamGreeting, WhoeverHasAnotherKeyEpochOrRankIsRefused) {
  EXPECT_EQ(greet(rank_of_run(3, 2), 5, rank_of_run(5)).connecting, State::kRefused);
  EXPECT_NE(greet(rank_of_run(3, 2), 5, rank_of_run(5)).answering, State::kDone);
  EXPECT_EQ(greet(rank_of_run(3, 1, 8), 5, rank_of_run(5)).answering, State::kRefused);
  EXPECT_EQ(greet(rank_of_run(3), 6, rank_of_run(5)).answering, State::kRefused);
  EXPECT_EQ(greet(rank_of_run(5), 5, rank_of_run(5)).answering, State::kRefused);
}

// Bytes recorded from one greeting fail in another, because its nonces differ.
TEST(StreamGreeting, ARecordedOneDoesNotPass) {
  Greeting a = Greeting::connecting(rank_of_run(3), 5, {1});
  Greeting b = Greeting::answering(rank_of_run(5), {2});
  const std::vector<std::uint8_t> hello(a.reply().begin(), a.reply().end());
  talk(a, b);
  talk(b, a);
  const std::vector<std::uint8_t> proof(a.reply().begin(), a.reply().end());
  Greeting again = Greeting::answering(rank_of_run(5), {9});
  again.take(hello);
  EXPECT_EQ(again.state(), State::kAwaitsProof);
  again.take(proof);
  EXPECT_EQ(again.state(), State::kRefused);
}

TEST(StreamGreeting, GarbageIsRefused) {
  Greeting b = Greeting::answering(rank_of_run(5), {2});
  const std::vector<std::uint8_t> garbage(100, 0x47);
  b.take(garbage);
  EXPECT_EQ(b.state(), State::kRefused);
  EXPECT_TRUE(b.reply().empty());
  b.take(garbage);
  EXPECT_EQ(b.state(), State::kRefused);
}

}  // namespace
}  // namespace spillway::net
