// SPDX-License-Identifier: Apache-2.0
#include "observe/flight_recorder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "net/system_call.h"
#include "observe/observe_testing.h"
#include "observe/operation_observer.h"

namespace spillway::runtime {
namespace {

using nlohmann::json;

OperationRecord operation(std::uint32_t sequence) {
  return {.sequence = sequence,
          .kind = "all_reduce",
          .type = "float32",
          .op = "sum",
          .algorithm = "ring",
          .queued = base::MonotonicClock().now()};
}

OperationRecord done(OperationRecord record) {
  record.state = OperationState::kDone;
  record.finished = base::MonotonicClock().now();
  return record;
}

std::vector<json> dump_of(const FlightRecorder& recorder) {
  const TemporaryFolder folder;
  const std::string file = folder.file("dump");
  const net::UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  recorder.dump(fd.get());
  std::vector<json> lines;
  for (const std::string& line : lines_of(text_of(file))) {
    lines.push_back(json::parse(line));
  }
  return lines;
}

TEST(FlightRecorder, ADumpSaysWhichOperationHangsAndForHowLong) {
  FlightRecorder recorder({.communicator = "data \"parallel\"\n", .rank = 3, .world = 8}, 16);
  OperationRecord stuck = operation(17);
  stuck.state = OperationState::kRunning;
  stuck.queued = stuck.queued - base::seconds(100);
  stuck.started = stuck.queued + base::seconds(1);
  stuck.count = 1000;
  stuck.bytes = 4000;
  stuck.add_late_rank(5);
  stuck.add_late_rank(6);
  recorder.begin(stuck);
  const auto lines = dump_of(recorder);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["record"], "recorder");
  EXPECT_EQ(lines[0]["pid"], ::getpid());
  for (const json& line : lines) {
    EXPECT_EQ(line["communicator"], "data \"parallel\"\n");
    EXPECT_EQ(line["rank"], 3);
    EXPECT_EQ(line["world"], 8);
  }
  EXPECT_EQ(lines[1]["sequence"], 17);
  EXPECT_EQ(lines[1]["kind"], "all_reduce");
  EXPECT_EQ(lines[1]["state"], "running");
  EXPECT_EQ(lines[1]["bytes"], 4000);
  EXPECT_EQ(lines[1]["late_ranks"], json({5, 6}));
  EXPECT_GE(lines[1]["pending_us"].get<std::int64_t>(), 100'000'000);
  EXPECT_FALSE(lines[1].contains("duration_us"));
  EXPECT_FALSE(lines[1].contains("error"));
  // Both were taken from the same clocks, one second apart.
  EXPECT_EQ(lines[1]["started_unix_us"].get<std::int64_t>() -
                lines[1]["queued_unix_us"].get<std::int64_t>(),
            1'000'000);
}

TEST(FlightRecorder, AFailureIsThereWithItsCulprit) {
  FlightRecorder recorder({}, 16);
  OperationRecord record = operation(1);
  const auto ticket = recorder.begin(record);
  record.fail(base::StatusCode::kUnavailable, "rank 5 said \"no\"\t\xff", 5,
              record.queued + base::seconds(2));
  recorder.end(ticket, record);
  const json line = dump_of(recorder).back();
  EXPECT_EQ(line["state"], "failed");
  EXPECT_EQ(line["error"], "unavailable");
  EXPECT_EQ(line["message"], "rank 5 said \"no\"\t?");
  EXPECT_EQ(line["culprit_rank"], 5);
  EXPECT_EQ(line["duration_us"], 2'000'000);
}

TEST(FlightRecorder, WhatHasNotEndedIsNeverOverwritten) {
  FlightRecorder recorder({}, 4);
  recorder.begin(operation(0));
  for (std::uint32_t i = 1; i < 100; ++i) {
    recorder.end(recorder.begin(operation(i)), done(operation(i)));
  }
  std::vector<std::uint32_t> kept;
  for (const OperationRecord& record : recorder.snapshot()) {
    kept.push_back(record.sequence);
  }
  std::sort(kept.begin(), kept.end());
  EXPECT_EQ(kept, (std::vector<std::uint32_t>{0, 97, 98, 99}));
}

TEST(FlightRecorder, OperationsWithoutRoomAreCounted) {
  FlightRecorder recorder({}, 2);
  const auto first = recorder.begin(operation(0));
  recorder.begin(operation(1));
  const auto third = recorder.begin(operation(2));
  EXPECT_EQ(third, FlightRecorder::kUnrecorded);
  recorder.update(third, operation(2));
  recorder.end(third, done(operation(2)));
  EXPECT_EQ(dump_of(recorder)[0]["unrecorded_operations"], 1);
  recorder.end(first, done(operation(0)));
  EXPECT_NE(recorder.begin(operation(3)), FlightRecorder::kUnrecorded);
}

TEST(FlightRecorder, TheFirstFailureIsDumpedToAFile) {
  const TemporaryFolder folder;
  const std::string file = folder.file("flight");
  FlightRecorder recorder({}, 4);
  recorder.begin(operation(1));
  EXPECT_FALSE(*recorder.dump_to_file_on_error(""));
  EXPECT_TRUE(*recorder.dump_to_file_on_error(file));
  EXPECT_FALSE(*recorder.dump_to_file_on_error(file));
  EXPECT_EQ(lines_of(text_of(file)).size(), 2U);
  FlightRecorder other({}, 4);
  const auto refused = other.dump_to_file_on_error("/nowhere/at/all");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("SPILLWAY_FLIGHT_FILE"), std::string::npos);
}

TEST(FlightRecorder, ItsSizeComesFromAVariable) {
  EXPECT_EQ(observer_config({}, {})->records, 1024U);
  EXPECT_EQ(observer_config({{"SPILLWAY_FLIGHT_RECORDER", "64"}}, {})->records, 64U);
  EXPECT_EQ(observer_config({{"SPILLWAY_FLIGHT_RECORDER", "0"}}, {}).status().message(),
            "SPILLWAY_FLIGHT_RECORDER is '0': it must be a whole number from 1 to 65536");
}

TEST(FlightRecorder, ReadersNeverSeeHalfARecord) {
  FlightRecorder recorder({}, 3);
  std::atomic<bool> ends{false};
  std::atomic<std::uint64_t> seen{0};
  std::atomic<std::uint64_t> torn{0};
  const net::UniqueFd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!ends.load()) {
        for (const OperationRecord& record : recorder.snapshot()) {
          seen.fetch_add(1);
          torn.fetch_add(is_uniform(record) ? 0 : 1);
        }
        recorder.dump(nowhere.get());
      }
    });
  }
  for (std::uint32_t i = 0; i < 20'000 || seen.load() < 1000; ++i) {
    const auto ticket = recorder.begin(uniform_record(i));
    recorder.update(ticket, uniform_record(i + 1));
    recorder.end(ticket, done(uniform_record(i + 2)));
  }
  ends.store(true);
  for (std::thread& reader : readers) {
    reader.join();
  }
  EXPECT_GE(seen.load(), 1000U);
  EXPECT_EQ(torn.load(), 0U);
}

TEST(RecorderRegistry, DumpsAllThatLive) {
  const TemporaryFolder folder;
  const std::string file = folder.file("dump");
  const net::UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const FlightRecorder first({.communicator = "first"}, 2);
  { const FlightRecorder gone({.communicator = "gone"}, 2); }
  const FlightRecorder second({.communicator = "second"}, 2);
  dump_recorders(fd.get());
  const auto lines = lines_of(text_of(file));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(json::parse(lines[0])["communicator"], "first");
  EXPECT_EQ(json::parse(lines[1])["communicator"], "second");
}

TEST(RecorderRegistry, OneTooManyIsWarnedOf) {
  const CapturedLog log;
  std::deque<FlightRecorder> recorders;
  for (std::size_t i = 0; i < kMaxRecorders; ++i) {
    recorders.emplace_back(Identity{}, 1);
  }
  EXPECT_EQ(log.text(), "");
  recorders.emplace_back(Identity{}, 1);
  EXPECT_TRUE(log.says("more than 64 communicators"));
}

TEST(RecorderRegistry, RecordersMayGoWhileADumpRuns) {
  std::atomic<bool> ends{false};
  std::atomic<int> dumps{0};
  const net::UniqueFd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  std::thread dumper([&] {
    while (!ends.load()) {
      dump_recorders(nowhere.get());
      dumps.fetch_add(1);
    }
  });
  for (int i = 0; i < 500 || dumps.load() < 100; ++i) {
    FlightRecorder recorder({}, 8);
    recorder.begin(operation(1));
  }
  ends.store(true);
  dumper.join();
}

}  // namespace
}  // namespace spillway::runtime
