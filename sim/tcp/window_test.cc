// SPDX-License-Identifier: Apache-2.0
#include "sim/tcp/window.h"

#include <gtest/gtest.h>

namespace spillway::sim {
namespace {

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
