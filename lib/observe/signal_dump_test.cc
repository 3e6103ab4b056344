// SPDX-License-Identifier: Apache-2.0
//
// A process installs one handler per signal for good, so every test uses a child process.
#include "observe/signal_dump.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "observe/flight_recorder.h"
#include "observe/observe_testing.h"

namespace spillway::runtime {
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
    const bool installed = install_signal_dump(*dump_config({})).ok();
    ::raise(SIGUSR2);
    return redirected && installed;
  })));
  EXPECT_EQ(json::parse(text_of(file))["communicator"], "here");
}

TEST(SignalDump, NoneLeavesTheSignalAlone) {
  EXPECT_TRUE(succeeds(start_child([] {
    struct sigaction action {};
    const bool ok = install_signal_dump(*dump_config({{"SPILLWAY_DUMP_SIGNAL", "NONE"}})).ok();
    ::sigaction(SIGUSR2, nullptr, &action);
    return ok && action.sa_handler == SIG_DFL;
  })));
}

TEST(SignalDump, ReadsItsVariables) {
  const auto signal = [](const std::string& text) {
    return dump_config({{"SPILLWAY_DUMP_SIGNAL", text}})->signal;
  };
  EXPECT_EQ(signal(""), SIGUSR2);
  EXPECT_EQ(signal("USR1"), SIGUSR1);
  EXPECT_EQ(signal("SIGHUP"), SIGHUP);
  EXPECT_EQ(signal(std::to_string(SIGUSR1)), SIGUSR1);
  EXPECT_EQ(signal(std::to_string(SIGRTMIN + 2)), SIGRTMIN + 2);
  EXPECT_EQ(signal("NONE"), 0);
  EXPECT_EQ(signal("0"), 0);
  for (const char* bad : {"KILL", "9", "SIGSEGV", "-1", "12x", "SIG"}) {
    const std::string message = dump_config({{"SPILLWAY_DUMP_SIGNAL", bad}}).status().message();
    EXPECT_TRUE(message.starts_with("SPILLWAY_DUMP_SIGNAL is '" + std::string(bad) +
                                    "': it must be NONE, USR1, USR2, HUP or QUIT"))
        << message;
  }
  EXPECT_EQ(dump_config({{"SPILLWAY_FLIGHT_FILE", "/x/%p"}})->file,
            "/x/" + std::to_string(::getpid()));
}

}  // namespace
}  // namespace spillway::runtime
