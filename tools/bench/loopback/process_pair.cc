// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/loopback/process_pair.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <exception>

#include "base/clock.h"
#include "base/environment.h"
#include "net/system_call.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {
namespace {

using net::UniqueFd;

// Gives each packet-moving thread a core that the other side does not use. With too few cores, the
// kernel places the threads.
void pin_to_cores(int side) {
  const auto threads = base::Environment::of_process().optional_number("SPILLWAY_IO_THREADS");
  const int wanted = threads.ok() ? static_cast<int>(threads->value_or(1)) : 1;
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2 * wanted) {
    return;
  }
  cpu_set_t own;
  CPU_ZERO(&own);
  int seen = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed) && seen++ / wanted == side) {
      CPU_SET(core, &own);
    }
  }
  ::sched_setaffinity(0, sizeof(own), &own);
}

// Counts this process's cycles, including the kernel's; an invalid descriptor if not permitted.
UniqueFd cycle_counter() {
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.size = sizeof(attributes);
  attributes.config = PERF_COUNT_HW_CPU_CYCLES;
  return UniqueFd(static_cast<int>(::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0)));
}

double cycles_of(const UniqueFd& counter) {
  std::uint64_t cycles = 0;
  if (!counter.valid() || ::read(counter.get(), &cycles, sizeof(cycles)) != sizeof(cycles)) {
    return 0.0;
  }
  return static_cast<double>(cycles);
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

// `others` is the other side's end of the stream. It is closed, so that the stream ends when that
// side does.
[[noreturn]] void run_side(const Side& side, int side_number, int stream, int others, int report) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  net::name_thread(side_number == 0 ? "sender" : "receiver");
  ::close(others);
  pin_to_cores(side_number);
  try {
    const UniqueFd counter = cycle_counter();
    const double before = cpu_seconds();
    SideResult result = side(stream);
    result.cpu_seconds = cpu_seconds() - before;
    result.cycles = cycles_of(counter);
    const bool written = ::write(report, &result, sizeof(result)) == sizeof(result);
    ::_exit(written ? 0 : 1);
  } catch (const std::exception& error) {
    fmt::print(stderr, "spillway: {}\n", error.what());
    std::fflush(stderr);
    ::_exit(1);
  }
}

struct Running {
  pid_t pid = -1;
  UniqueFd report;
};

Running start_side(const Side& side, int core, int stream, int others) {
  std::array<int, 2> report{};
  if (::pipe(report.data()) != 0) {
    throw CommandError("cannot make a pipe");
  }
  UniqueFd read_end(report[0]);
  const UniqueFd write_end(report[1]);
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) {
    throw CommandError("cannot start a process");
  }
  if (pid == 0) {
    run_side(side, core, stream, others, write_end.get());
  }
  return {pid, std::move(read_end)};
}

SideResult result_of(const Running& running) {
  SideResult result;
  const bool complete = ::read(running.report.get(), &result, sizeof(result)) == sizeof(result);
  int status = 0;
  ::waitpid(running.pid, &status, 0);
  if (!complete) {
    throw CommandError("a measuring process died");
  }
  return result;
}

}  // namespace

std::pair<SideResult, SideResult> run_pair(const Side& sender, const Side& receiver) {
  std::array<int, 2> streams{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, streams.data()) != 0) {
    throw CommandError("cannot make a pair of sockets");
  }
  UniqueFd sender_stream(streams[0]);
  UniqueFd receiver_stream(streams[1]);
  const Running sending = start_side(sender, 0, streams[0], streams[1]);
  const Running receiving = start_side(receiver, 1, streams[1], streams[0]);
  sender_stream = UniqueFd();
  receiver_stream = UniqueFd();
  const SideResult sent = result_of(sending);
  return {sent, result_of(receiving)};
}

net::SocketAddress loopback(std::uint16_t port) {
  return value_or_throw(net::SocketAddress::parse(fmt::format("127.0.0.1:{}", port)));
}

base::Instant now() {
  return base::MonotonicClock().now();
}

double seconds_between(base::Instant a, base::Instant b) {
  return static_cast<double>((b - a).count()) * 1e-9;
}

void sleep_until(base::Instant when) {
  const timespec time = net::timespec_of(when.since_zero());
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) != 0) {
  }
}

void tell_port(int stream, std::uint16_t port) {
  if (::write(stream, &port, sizeof(port)) != sizeof(port)) {
    throw CommandError("the sender is gone");
  }
}

std::uint16_t hear_port(int stream) {
  std::uint16_t port = 0;
  if (::read(stream, &port, sizeof(port)) != sizeof(port)) {
    throw CommandError("the receiver is gone");
  }
  return port;
}

bool is_done(int stream, int wait_milliseconds) {
  pollfd poll{stream, POLLIN, 0};
  return ::poll(&poll, 1, wait_milliseconds) > 0;
}

}  // namespace spillway::bench
