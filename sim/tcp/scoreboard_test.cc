// SPDX-License-Identifier: Apache-2.0
#include "sim/tcp/scoreboard.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace spillway::sim {
namespace {

TcpScoreboard with_sent(std::uint32_t segments, std::uint32_t sent) {
  TcpScoreboard board(segments, segments);
  for (std::uint32_t i = 0; i < sent; ++i) {
    board.send_new();
  }
  return board;
}

TEST(TcpScoreboard, SegmentIsLostOnceThreeLaterOnesAreAcknowledged) {
  TcpScoreboard board = with_sent(10, 6);
  board.acknowledge_run(1, 2);
  EXPECT_EQ(board.find_lost(), 0U);
  board.acknowledge_run(3, 3);
  EXPECT_EQ(board.find_lost(), 1U);
  EXPECT_EQ(board.lost(), 1U);
  EXPECT_EQ(board.in_flight(), 2U);
  EXPECT_EQ(board.send_lost(), 0U);
}

TEST(TcpScoreboard, LostRetransmissionIsFoundByThreeLaterTransmissions) {
  TcpScoreboard board = with_sent(20, 6);
  board.acknowledge_run(1, 5);
  board.find_lost();
  board.send_lost();
  for (int i = 0; i < 3; ++i) {
    board.send_new();
  }
  board.acknowledge_run(6, 7);
  EXPECT_EQ(board.find_lost(), 0U);
  board.acknowledge_run(8, 8);
  EXPECT_EQ(board.find_lost(), 1U);
  EXPECT_EQ(board.send_lost(), 0U);
}

TEST(TcpScoreboard, AcknowledgementsOfUnsentOrKnownSegmentsChangeNothing) {
  TcpScoreboard board = with_sent(10, 4);
  board.acknowledge_below(2);
  board.acknowledge_below(1);
  board.acknowledge_run(0, 1);
  board.acknowledge_run(7, 9);
  EXPECT_EQ(board.first_open(), 2U);
  EXPECT_EQ(board.acknowledged(), 2U);
  EXPECT_EQ(board.in_flight(), 2U);
  board.acknowledge_below(10);
  EXPECT_EQ(board.first_open(), 4U);
  EXPECT_FALSE(board.complete());
}

TEST(TcpScoreboard, NewSegmentsStopAtTheLargestWindow) {
  TcpScoreboard board(100, 5);
  while (board.has_new()) {
    board.send_new();
  }
  EXPECT_EQ(board.next_new(), 5U);
  board.acknowledge_below(2);
  EXPECT_TRUE(board.has_new());
}

TEST(TcpScoreboard, LostSegmentThatArrivesAfterAllIsNotSentAgain) {
  TcpScoreboard board = with_sent(10, 6);
  board.acknowledge_run(2, 4);
  EXPECT_EQ(board.find_lost(), 2U);
  board.acknowledge_below(1);
  EXPECT_EQ(board.lost(), 1U);
  EXPECT_EQ(board.send_lost(), 1U);
}

// Compares the counters with a plain recount over random sends, losses and acknowledgements.
TEST(TcpScoreboard, CountsMatchARecountOnRandomHistories) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    base::RandomSequence random(seed);
    TcpScoreboard board(200, 32);
    std::vector<bool> arrived(200, false);
    std::uint32_t next = 0;
    for (int step = 0; step < 4000 && !board.complete(); ++step) {
      std::uint32_t sent = 0;
      if (board.lost() > 0) {
        sent = board.send_lost();
      } else if (board.has_new()) {
        sent = board.send_new();
      } else {
        board.lose_all_in_flight();
        continue;
      }
      EXPECT_FALSE(sent < board.first_open());
      if (random.next_below(4) == 0) {
        continue;  // lost on the way
      }
      arrived[sent] = true;
      while (next < 200 && arrived[next]) {
        ++next;
      }
      board.acknowledge_below(next);
      board.acknowledge_run(sent, sent);
      board.find_lost();
      std::uint32_t known = 0;
      for (const bool came : arrived) {
        known += came ? 1 : 0;
      }
      ASSERT_EQ(board.acknowledged(), known);
      ASSERT_EQ(board.in_flight() + board.lost(), board.next_new() - known);
    }
    EXPECT_TRUE(board.complete()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace spillway::sim
