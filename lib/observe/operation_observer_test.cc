// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "observe/observe_testing.h"
#include "observe/operation_observer.h"
#include "observe/operation_record.h"

namespace spillway::observe {

namespace {

class OperationObserverTest : public ::testing::Test {
 protected:
  void run(collective::DataType type, bool tolerant) {
    collective::Operation operation;
    operation.type = type;
    operation.count = 1000;
    if (tolerant) {
      operation.tolerance.emplace();
    }
    observer_.begin(1, operation, base::Instant{});
    collective::OperationReport report;
    report.operation = operation;
    report.peers.resize(1);
    observer_.end(1, base::Status(), report);
  }

  CapturedLog log_;
  OperationObserver observer_{Identity{.rank = 0, .world = 1}, ObserverConfig{}};
};

TEST_F(OperationObserverTest, SaysOnceThatTolerantFloat64LosesRange) {
  run(collective::DataType::kFloat64, true);
  run(collective::DataType::kFloat64, true);
  EXPECT_TRUE(log_.says("values beyond 3.4e38 count as not finite"));
  EXPECT_EQ(log_.lines().size(), 1U);
}

TEST_F(OperationObserverTest, SaysNothingWhereNoRangeIsLost) {
  run(collective::DataType::kFloat64, false);
  run(collective::DataType::kFloat32, true);
  EXPECT_EQ(log_.text(), "");
}

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
  EXPECT_EQ(wait_of(Holdup::kStream, false), net::Wait::kStream);
  EXPECT_EQ(wait_of(Holdup::kReport, false), net::Wait::kAnswer);
  EXPECT_EQ(wait_of(Holdup::kReport, true), net::Wait::kComputing);
  EXPECT_EQ(wait_of(Holdup::kIncoming, false), net::Wait::kOtherRank);
  EXPECT_EQ(wait_of(Holdup::kReceiver, false), net::Wait::kOtherRank);
  EXPECT_EQ(wait_of(Holdup::kIdle, false), net::Wait::kComputing);
}

// ------------------------------------------------------------------ records

TEST(OperationRecord, AFailureKeepsItsCauseAndIsCutBetweenCharacters) {
  OperationRecord record;
  const std::string umlauts = [] {
    std::string text = "x";
    for (int i = 0; i < 200; ++i) {
      text += "\u00e4";
    }
    return text;
  }();
  record.fail(base::StatusCode::kUnavailable, umlauts, 3, base::Instant(base::seconds(1)));
  EXPECT_EQ(record.state, OperationState::kFailed);
  EXPECT_EQ(record.error, base::StatusCode::kUnavailable);
  EXPECT_EQ(record.culprit_rank, 3);
  // 159 bytes and a zero leave room for only half an umlaut more.
  EXPECT_EQ(std::string(record.message.data()), umlauts.substr(0, 159));
}

TEST(OperationRecord, NamesAFewLateRanksAndCountsAll) {
  OperationRecord record;
  for (std::uint32_t rank = 0; rank < 20; ++rank) {
    record.add_late_rank(100 + rank);
  }
  EXPECT_EQ(record.late_count, 20U);
  EXPECT_EQ(record.named_late_ranks(), OperationRecord::kMaxLateRanks);
  EXPECT_EQ(record.late_ranks.back(), 107U);
}

TEST(OperationRecord, LastsUntilItsEndOrUntilNow) {
  OperationRecord record{.queued = base::Instant(base::seconds(1)),
                         .finished = base::Instant(base::seconds(3))};
  const base::Instant now(base::seconds(9));
  EXPECT_EQ(record.duration(now), base::seconds(8));
  record.state = OperationState::kDone;
  EXPECT_EQ(record.duration(now), base::seconds(2));
}

TEST(CleanText, KeepsCharactersAndReplacesWhatIsNone) {
  EXPECT_EQ(clean_text("plain \u00e4 \u20ac \U0001F600"), "plain \u00e4 \u20ac \U0001F600");
  EXPECT_EQ(clean_text("a\xff"
                       "b"),
            "a?b");
  EXPECT_EQ(clean_text("\xc3"), "?");                 // an incomplete character
  EXPECT_EQ(clean_text("\xc0\xaf"), "??");            // '/' in two bytes
  EXPECT_EQ(clean_text("\xed\xa0\x80"), "???");       // half of a surrogate pair
  EXPECT_EQ(clean_text("\xf4\x90\x80\x80"), "????");  // past the last code point
  EXPECT_EQ(clean_text(std::string_view("a\0b", 3)), "a?b");
}

TEST(CleanText, CutsBetweenCharacters) {
  std::array<char, 4> out{};
  copy_clean("ab\u00e4", out);
  EXPECT_STREQ(out.data(), "ab");
  copy_clean("a\u00e4x", out);
  EXPECT_STREQ(out.data(), "a\u00e4");
}

}  // namespace

}  // namespace spillway::observe
