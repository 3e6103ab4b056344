// SPDX-License-Identifier: Apache-2.0
#include "observe/wait_watch.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace spillway::runtime {
namespace {

base::Instant at_ms(std::int64_t milliseconds) {
  return base::Instant(base::milliseconds(milliseconds));
}

class WaitWatchTest : public testing::Test {
 protected:
  ~WaitWatchTest() override { std::filesystem::remove_all(folder_); }

  static std::string make_folder() {
    std::string folder = testing::TempDir() + "wait_watch_XXXXXX";
    return ::mkdtemp(folder.data());
  }
  std::uint64_t looks(net::Wait wait) const {
    return board_.read().looks[static_cast<std::size_t>(wait)];
  }

  std::string folder_ = make_folder();
  std::string path_ = folder_ + "/waits";
  net::WaitBoard board_ = net::WaitBoard::make(path_).value();
  WaitWatch watch_{path_};
};

TEST_F(WaitWatchTest, LooksOnlyWhileSomethingIsUnderWay) {
  EXPECT_EQ(watch_.next_look(), transport::kNever);
  watch_.begin(at_ms(12));
  EXPECT_EQ(watch_.next_look(), at_ms(15));
  EXPECT_EQ(board_.read().under_way, 1U);
  watch_.begin(at_ms(13));
  watch_.end();
  EXPECT_EQ(watch_.next_look(), at_ms(15));
  watch_.look(net::Wait::kCredit, at_ms(14));  // too early
  EXPECT_EQ(looks(net::Wait::kCredit), 0U);
  watch_.look(net::Wait::kCredit, at_ms(16));
  EXPECT_EQ(looks(net::Wait::kCredit), 1U);
  EXPECT_EQ(watch_.next_look(), at_ms(20));
  watch_.end();
  EXPECT_EQ(watch_.next_look(), transport::kNever);
  EXPECT_EQ(board_.read().under_way, 0U);
}

TEST_F(WaitWatchTest, AThreadThatCouldNotLookWasComputing) {
  watch_.begin(at_ms(1));
  watch_.look(net::Wait::kAnswer, at_ms(22));  // due at 5
  EXPECT_EQ(looks(net::Wait::kComputing), 3U);
  EXPECT_EQ(looks(net::Wait::kAnswer), 1U);
}

TEST_F(WaitWatchTest, BytesAreToldOnce) {
  transport::EndpointCounters counters;
  counters.data_sent_bytes = 100;
  counters.data_resent_bytes = 10;
  watch_.tell(counters);
  counters.data_sent_bytes = 150;
  counters.wasted_bytes = 3;
  watch_.tell(counters);
  watch_.tell(counters);
  EXPECT_EQ(board_.read().sent_bytes, 150U);
  EXPECT_EQ(board_.read().resent_bytes, 10U);
  EXPECT_EQ(board_.read().wasted_bytes, 3U);
}

TEST(WaitWatch, WithoutABoardNothingIsLookedAt) {
  WaitWatch watch{std::string()};
  watch.begin(at_ms(1));
  EXPECT_EQ(watch.next_look(), transport::kNever);
  watch.tell({});
  watch.end();
  WaitWatch misled{std::string("/no/such/file")};
  misled.begin(at_ms(1));
  EXPECT_EQ(misled.next_look(), transport::kNever);
}

TEST(WaitWatch, WhatHoldsUpAnEndpointIsWhatARankWaitsFor) {
  using transport::Holdup;
  EXPECT_EQ(wait_of(Holdup::kNothing, true), net::Wait::kNothing);
  EXPECT_EQ(wait_of(Holdup::kCredit, true), net::Wait::kCredit);
  EXPECT_EQ(wait_of(Holdup::kWindow, false), net::Wait::kWindow);
  EXPECT_EQ(wait_of(Holdup::kAnswer, false), net::Wait::kAnswer);
  EXPECT_EQ(wait_of(Holdup::kAnswer, true), net::Wait::kComputing);
  EXPECT_EQ(wait_of(Holdup::kIncoming, false), net::Wait::kOtherRank);
  EXPECT_EQ(wait_of(Holdup::kReceiver, false), net::Wait::kOtherRank);
  EXPECT_EQ(wait_of(Holdup::kIdle, false), net::Wait::kComputing);
}

}  // namespace
}  // namespace spillway::runtime
