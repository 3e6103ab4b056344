// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "net/system_call.h"
#include "observe/flight_recorder.h"
#include "observe/observe_testing.h"
#include "observe/operation_observer.h"

namespace spillway::observe {

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

namespace {

TEST(RecordSlot, IsEmptyAndThenHoldsWhatWasPublishedLast) {
  RecordSlot slot;
  OperationRecord record;
  EXPECT_EQ(slot.read(record), RecordSlot::Sight::kEmpty);
  for (std::uint32_t i = 1; i < 5; ++i) {
    slot.publish(uniform_record(i));
    ASSERT_EQ(slot.read(record), RecordSlot::Sight::kRead);
    EXPECT_EQ(record.sequence, i);
    EXPECT_TRUE(is_uniform(record));
  }
}

// Records are made in advance, so the writer only writes.
TEST(RecordSlot, AReaderNeverSeesAMixture) {
  const OperationRecord records[] = {uniform_record(1), uniform_record(2), uniform_record(3)};
  RecordSlot slot;
  slot.publish(records[0]);
  std::atomic<bool> ends{false};
  std::thread writer([&] {
    for (std::size_t i = 0; !ends.load(std::memory_order_relaxed); ++i) {
      slot.publish(records[i % 3]);
    }
  });
  std::uint64_t seen = 0;
  std::uint64_t mixed = 0;
  for (int i = 0; i < 200'000 || seen == 0; ++i) {
    OperationRecord record;
    if (slot.read(record) == RecordSlot::Sight::kRead) {
      ++seen;
      mixed += is_uniform(record) ? 0 : 1;
    }
  }
  ends.store(true);
  writer.join();
  EXPECT_GT(seen, 0U);
  EXPECT_EQ(mixed, 0U);
}

}  // namespace

// A process installs one handler per signal for good, so every test uses a child process.

namespace {

using nlohmann::json;

volatile sig_atomic_t handled = 0;
void count_signal(int /*signal*/) {
  handled = handled + 1;
}
void count_signal_with_sender(int /*signal*/, siginfo_t* info, void* /*context*/) {
  handled = handled + (info->si_pid == ::getpid() ? 1 : 100);
}

OperationRecord running(std::uint32_t sequence) {
  return {.sequence = sequence,
          .state = OperationState::kRunning,
          .kind = "broadcast",
          .queued = base::MonotonicClock().now()};
}

pid_t start_child(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a killed test leaves no child behind
    ::_exit(work() ? 0 : 1);
  }
  return child;
}

bool succeeds(pid_t child) {
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(SignalDump, ASignalDumpsWhatIsPendingAndCallsTheHandlerBefore) {
  const TemporaryFolder folder;
  const std::string file = folder.file("flight");
  EXPECT_TRUE(succeeds(start_child([&] {
    struct sigaction before {};
    before.sa_sigaction = count_signal_with_sender;
    before.sa_flags = SA_SIGINFO;
    ::sigaction(SIGUSR2, &before, nullptr);
    FlightRecorder recorder({.communicator = "world", .rank = 2, .world = 4}, 8);
    recorder.begin(running(9));
    const bool installed = install_signal_dump({.signal = SIGUSR2, .file = file}).ok();
    ::kill(::getpid(), SIGUSR2);
    return installed && handled == 1;
  })));
  const auto lines = lines_of(text_of(file));
  ASSERT_EQ(lines.size(), 2U);
  const json line = json::parse(lines[1]);
  EXPECT_EQ(line["rank"], 2);
  EXPECT_EQ(line["sequence"], 9);
  EXPECT_EQ(line["kind"], "broadcast");
  EXPECT_EQ(line["state"], "running");
  EXPECT_TRUE(line.contains("pending_us"));
}

// The signal may interrupt the writer anywhere, even in the middle of a record.
TEST(SignalDump, TheWriterItselfCanBeInterrupted) {
  constexpr int kSignals = 50;
  const TemporaryFolder folder;
  const std::string file = folder.file("flight");
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = start_child([&] {
    ::signal(SIGUSR2, count_signal);
    FlightRecorder recorder({}, 2);
    const auto ticket = recorder.begin(running(0));
    if (!install_signal_dump({.signal = SIGUSR2, .file = file}).ok() ||
        ::write(ready[1], "", 1) != 1) {
      return false;
    }
    for (std::uint32_t i = 0; handled < kSignals; ++i) {
      recorder.update(ticket, running(i));
    }
    return true;
  });
  ::close(ready[1]);
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    ::kill(child, SIGUSR2);
    std::this_thread::yield();
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const auto lines = lines_of(text_of(file));
  EXPECT_GE(lines.size(), 2U * kSignals);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(json::parse(lines[i])["record"], i % 2 == 0 ? "recorder" : "operation");
  }
}

TEST(SignalDump, AHandlerThatComesLaterStays) {
  const TemporaryFolder folder;
  const std::string file = folder.file("flight");
  EXPECT_TRUE(succeeds(start_child([&] {
    const FlightRecorder recorder({}, 2);
    const DumpConfig config = {.signal = SIGUSR1, .file = file};
    const bool first = install_signal_dump(config).ok();
    ::signal(SIGUSR1, count_signal);
    const bool second = install_signal_dump(config).ok();
    ::raise(SIGUSR1);
    return first && second && handled == 1;
  })));
  EXPECT_EQ(text_of(file), "");
}

TEST(SignalDump, WithoutAFileItGoesToStandardErrorAndNobodyDies) {
  const TemporaryFolder folder;
  const std::string file = folder.file("stderr");
  EXPECT_TRUE(succeeds(start_child([&] {
    const bool redirected = std::freopen(file.c_str(), "w", stderr) != nullptr;
    const FlightRecorder recorder({.communicator = "here"}, 2);
    const bool installed = install_signal_dump(dump_config({})).ok();
    ::raise(SIGUSR2);
    return redirected && installed;
  })));
  EXPECT_EQ(json::parse(text_of(file))["communicator"], "here");
}

TEST(SignalDump, NoneLeavesTheSignalAlone) {
  EXPECT_TRUE(succeeds(start_child([] {
    struct sigaction action {};
    const bool ok = install_signal_dump({}).ok();
    ::sigaction(SIGUSR2, nullptr, &action);
    return ok && action.sa_handler == SIG_DFL;
  })));
}

TEST(SignalDump, ReadsItsVariable) {
  EXPECT_EQ(dump_config({}).signal, SIGUSR2);
  EXPECT_EQ(dump_config({{"SPILLWAY_FLIGHT_FILE", "/x/%p"}}).file,
            "/x/" + std::to_string(::getpid()));
}

}  // namespace

}  // namespace spillway::observe
