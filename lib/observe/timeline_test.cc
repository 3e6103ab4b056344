// SPDX-License-Identifier: Apache-2.0
#include "observe/timeline.h"

#include <gtest/gtest.h>
#include <time.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "observe/observe_testing.h"
#include "observe/operation_observer.h"

namespace spillway::observe {
namespace {

using nlohmann::json;

const Identity kRank3{.communicator = "world", .rank = 3, .world = 8};

OperationRecord operation(std::uint32_t sequence, base::Instant queued) {
  return {.sequence = sequence,
          .priority = 2,
          .kind = "all_reduce",
          .type = "float32",
          .op = "sum",
          .algorithm = "ring",
          .count = 1000,
          .bytes = 4000,
          .queued = queued};
}

void run(Timeline& timeline, OperationRecord record, base::Duration waits, base::Duration runs) {
  timeline.begin(record);
  record.started = record.queued + waits;
  timeline.started(record);
  record.finished = record.started + runs;
  record.state = OperationState::kDone;
  timeline.end(record);
}

std::vector<json> with_phase(const json& events, const std::string& phase) {
  std::vector<json> found;
  std::copy_if(events.begin(), events.end(), std::back_inserter(found),
               [&phase](const json& event) { return event["ph"] == phase; });
  return found;
}

class TimelineTest : public testing::Test {
 protected:
  std::unique_ptr<Timeline> open(std::size_t most = Timeline::kMaxEvents) const {
    auto timeline = Timeline::open(path_, kRank3, most);
    EXPECT_TRUE(timeline.ok()) << timeline.status().message();
    return std::move(timeline).value();
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("timeline.json");
  base::Instant now_ = base::MonotonicClock().now();
};

TEST_F(TimelineTest, AnOperationIsABarWithItsWaitInside) {
  {
    const auto timeline = open();
    OperationRecord record = operation(7, now_);
    timeline->begin(record);
    record.started = now_ + base::microseconds(10);
    timeline->started(record);
    record.finished = now_ + base::microseconds(50);
    record.state = OperationState::kDone;
    record.packets_trimmed = 4;
    record.packets_missing = 2;
    record.add_late_rank(5);
    timeline->end(record);
  }
  const json events = json::parse(text_of(path_));
  const auto begins = with_phase(events, "b");
  const auto ends = with_phase(events, "e");
  ASSERT_EQ(begins.size(), 2U);
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_EQ(begins[0]["name"], "all_reduce");
  EXPECT_EQ(begins[0]["args"]["bytes"], 4000);
  EXPECT_EQ(begins[0]["args"]["algorithm"], "ring");
  EXPECT_EQ(begins[1]["name"], "queued");
  EXPECT_EQ(ends[0]["name"], "queued");
  EXPECT_EQ(ends[1]["name"], "all_reduce");
  EXPECT_EQ(ends[1]["args"]["trimmed"], 4);
  EXPECT_EQ(ends[1]["args"]["missing"], 2);
  EXPECT_EQ(ends[1]["args"]["late_ranks"], json({5}));
  for (const json& event : {begins[0], begins[1], ends[0], ends[1]}) {
    EXPECT_EQ(event["id2"]["local"], "7");
    EXPECT_EQ(event["pid"], 3);
  }
  // A double holds microseconds since 1970 to a quarter.
  const double began = begins[0]["ts"];
  EXPECT_NEAR(ends[0]["ts"].get<double>() - began, 10, 1);
  EXPECT_NEAR(ends[1]["ts"].get<double>() - began, 50, 1);
}

TEST_F(TimelineTest, TimesAreThoseOfTheDayAndTheRankHasAName) {
  const time_t before = ::time(nullptr);
  run(*open(), operation(1, base::MonotonicClock().now()), base::Duration(), base::Duration());
  const json events = json::parse(text_of(path_));
  const double began = with_phase(events, "b")[0]["ts"];
  EXPECT_GE(began, (static_cast<double>(before) - 2) * 1e6);
  EXPECT_LE(began, (static_cast<double>(::time(nullptr)) + 2) * 1e6);
  EXPECT_EQ(events[0]["name"], "process_name");
  EXPECT_EQ(events[0]["args"]["name"], "rank 3 of 8");
  EXPECT_EQ(events[1]["args"]["sort_index"], 3);
}

TEST_F(TimelineTest, OperationsThatOverlapHaveIdsOfTheirOwn) {
  {
    const auto timeline = open();
    for (std::uint32_t i = 0; i < 5; ++i) {
      timeline->begin(operation(i, now_));
    }
    for (std::uint32_t i = 0; i < 5; ++i) {
      OperationRecord record = operation(i, now_);
      record.fail(base::StatusCode::kUnavailable, "rank 1 is \"gone\"", 1, now_ + base::seconds(1));
      timeline->end(record);
    }
  }
  std::map<std::string, int> depth;
  for (const json& event : json::parse(text_of(path_))) {
    if (event["ph"] != "M") {
      depth[event["id2"]["local"]] += event["ph"] == "b" ? 1 : -1;
    }
    if (event["ph"] == "e" && event["name"] == "all_reduce") {
      EXPECT_EQ(event["args"]["message"], "rank 1 is \"gone\"");
      EXPECT_EQ(event["args"]["culprit_rank"], 1);
    }
  }
  EXPECT_EQ(depth.size(), 5U);
  for (const auto& [id, open] : depth) {
    EXPECT_EQ(open, 0) << id;
  }
}

TEST_F(TimelineTest, IsReadableWhileItIsWritten) {
  const auto timeline = open();
  EXPECT_EQ(json::parse(text_of(path_) + "]").size(), 3U);
  timeline->begin(operation(1, now_));
  EXPECT_EQ(with_phase(json::parse(text_of(path_) + "]"), "b").size(), 2U);
}

TEST_F(TimelineTest, IsBoundedAndWhatBeganEnds) {
  const CapturedLog log;
  {
    const auto timeline = open(10);
    for (std::uint32_t i = 0; i < 5; ++i) {
      run(*timeline, operation(i, now_), base::seconds(1), base::seconds(1));
    }
  }
  const json events = json::parse(text_of(path_));
  EXPECT_EQ(with_phase(events, "b").size(), 4U);
  EXPECT_EQ(with_phase(events, "e").size(), 4U);
  ASSERT_EQ(log.lines().size(), 1U);
  EXPECT_TRUE(log.says("is full"));
}

TEST_F(TimelineTest, TwoDoNotShareAFile) {
  const auto first = open();
  const auto second = Timeline::open(path_, kRank3);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("put %r"), std::string::npos);
  EXPECT_EQ(json::parse(text_of(path_) + "]").size(), 3U);
}

TEST_F(TimelineTest, ReplacesTheFileOfARunBefore) {
  { std::ofstream(path_) << std::string(100'000, 'x'); }
  open();
  EXPECT_EQ(json::parse(text_of(path_)).size(), 3U);
}

TEST_F(TimelineTest, TheVariableNamesTheFile) {
  const CapturedLog log;
  const auto open = [](const std::string& pattern) {
    const auto config = observer_config({{"SPILLWAY_TIMELINE", pattern}}, kRank3);
    return open_timeline(config->timeline, kRank3);
  };
  EXPECT_EQ(open(""), nullptr);
  EXPECT_NE(open(folder_.file("%r.json")), nullptr);
  EXPECT_EQ(json::parse(text_of(folder_.file("3.json"))).size(), 3U);
  EXPECT_EQ(log.text(), "");
  EXPECT_EQ(open("/nowhere/at/all"), nullptr);
  EXPECT_TRUE(log.says("no timeline: cannot write /nowhere/at/all"));
}

}  // namespace
}  // namespace spillway::observe
