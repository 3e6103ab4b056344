// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
#include "sim/stacks/tcp_sender.h"

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

// Acknowledges one window of data after the other, segment by segment.
class WindowDriver {
 public:
  explicit WindowDriver(const scenario::TcpConfig& config) : window(config) {}

  void run_window(std::uint32_t marked_of_ten) {
    const std::uint32_t end = open_ + window.segments();
    const std::uint32_t next = end + window.segments();
    while (open_ < end) {
      ++open_;
      const bool marked = (acknowledged_++ % 10) < marked_of_ten;
      window.on_ack(
          {.newly_acknowledged = 1, .marked = marked, .first_open = open_, .next_new = next});
    }
  }
  std::uint32_t open() const { return open_; }

  TcpWindow window;

 private:
  std::uint32_t open_ = 0;
  std::uint32_t acknowledged_ = 0;
};

TEST(TcpWindow, SlowStartDoublesPerWindow) {
  WindowDriver driver({});
  EXPECT_EQ(driver.window.segments(), 10U);
  driver.run_window(0);
  EXPECT_EQ(driver.window.segments(), 20U);
  driver.run_window(0);
  EXPECT_EQ(driver.window.segments(), 40U);
}

TEST(TcpWindow, LossHalvesItOnceAndItThenGrowsByOnePerWindow) {
  WindowDriver driver({.kind = scenario::TcpKind::kNewReno});
  driver.run_window(0);
  driver.run_window(0);
  ASSERT_EQ(driver.window.segments(), 40U);
  EXPECT_TRUE(driver.window.on_loss(driver.open(), driver.open() + 40));
  EXPECT_EQ(driver.window.segments(), 20U);
  EXPECT_FALSE(driver.window.on_loss(driver.open() + 5, driver.open() + 45));
  EXPECT_EQ(driver.window.segments(), 20U);
  driver.run_window(0);
  driver.run_window(0);  // what was in flight at the cut is now acknowledged
  const std::uint32_t before = driver.window.segments();
  driver.run_window(0);
  EXPECT_EQ(driver.window.segments(), before + 1);
}

TEST(TcpWindow, TimeoutStartsSlowlyAgainUpToHalfOfWhatWasInFlight) {
  WindowDriver driver({.kind = scenario::TcpKind::kNewReno});
  driver.window.on_timeout(16, 16);
  EXPECT_EQ(driver.window.segments(), 1U);
  for (int i = 0; i < 3; ++i) {
    driver.run_window(0);
  }
  EXPECT_EQ(driver.window.segments(), 8U);
  driver.run_window(0);
  driver.run_window(0);
  EXPECT_EQ(driver.window.segments(), 9U);
}

TEST(TcpWindow, StaysBelowTheLargest) {
  WindowDriver driver({.window_max = base::bytes(100 * 1460)});
  for (int i = 0; i < 10; ++i) {
    driver.run_window(0);
  }
  EXPECT_EQ(driver.window.segments(), 100U);
}

TEST(TcpWindow, AlphaConvergesToTheShareOfMarks) {
  for (const std::uint32_t marked_of_ten : {0U, 3U, 10U}) {
    WindowDriver driver({.initial_window = 100});
    for (int i = 0; i < 400; ++i) {
      driver.run_window(marked_of_ten);
    }
    EXPECT_NEAR(driver.window.alpha(), marked_of_ten / 10.0, 0.12) << marked_of_ten;
  }
}

TEST(TcpWindow, MarksCutByHalfOfAlphaOncePerWindow) {
  WindowDriver driver({.initial_window = 100});
  for (int i = 0; i < 100; ++i) {
    driver.window.on_ack({.newly_acknowledged = 0, .first_open = 0, .next_new = 100});
  }
  const double alpha = driver.window.alpha();
  driver.window.on_ack({.newly_acknowledged = 0, .marked = true, .first_open = 1, .next_new = 101});
  EXPECT_EQ(driver.window.segments(), static_cast<std::uint32_t>(100 * (1 - alpha / 2)));
  const std::uint32_t cut = driver.window.segments();
  driver.window.on_ack(
      {.newly_acknowledged = 1, .marked = true, .first_open = 50, .next_new = 130});
  EXPECT_EQ(driver.window.segments(), cut);
  driver.window.on_ack(
      {.newly_acknowledged = 1, .marked = true, .first_open = 101, .next_new = 160});
  EXPECT_LT(driver.window.segments(), cut);
}

TEST(TcpWindow, NewRenoIgnoresMarks) {
  WindowDriver driver({.kind = scenario::TcpKind::kNewReno});
  driver.run_window(10);
  EXPECT_EQ(driver.window.segments(), 20U);
}

TEST(TcpTimer, IsSmoothedRoundTripPlusFourDeviationsAboveTheMinimum) {
  TcpTimer timer({.rto_min = base::microseconds(10)});
  timer.on_sample(base::microseconds(100));
  EXPECT_EQ(timer.timeout(), base::microseconds(300));
  TcpTimer floored({.rto_min = base::milliseconds(200)});
  EXPECT_EQ(floored.timeout(), base::milliseconds(200));
  floored.on_sample(base::microseconds(100));
  EXPECT_EQ(floored.timeout(), base::milliseconds(200));
}

TEST(TcpTimer, DoublesUntilSomethingArrivesAndNeverPassesItsMaximum) {
  TcpTimer timer({.rto_min = base::milliseconds(10), .rto_max = base::seconds(1)});
  timer.on_timeout();
  timer.on_timeout();
  EXPECT_EQ(timer.timeout(), base::milliseconds(40));
  timer.on_progress();
  EXPECT_EQ(timer.timeout(), base::milliseconds(10));
  for (int i = 0; i < 100; ++i) {
    timer.on_timeout();
  }
  EXPECT_EQ(timer.timeout(), base::seconds(1));
}

}  // namespace
}  // namespace spillway::sim
