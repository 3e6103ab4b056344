// SPDX-License-Identifier: Apache-2.0
//
// How much slower this machine is right now than a quiet reference machine, for the limits of
// tests. A test waits for a condition; a limit only ends a hung test, and grows with the machine's
// load. Loops use Limit or wait_until(), which measure when the quiet machine's limit is over.
// patience() is for limits that must be known in advance. A test of what something costs compares
// reference_time() with a bound, because elapsed time includes waits for a processor.
//
// slowdown() times a fixed piece of work: arithmetic, and threads that hand a token to each other,
// so that both a slow processor and a long run queue count. It takes about 12 ms on a quiet
// machine. C++ tests include this header; Python and shell tests run tests/harness/slowdown.cc as a
// program.
#pragma once

#include <poll.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <semaphore>
#include <thread>

namespace spillway::harness {

using SteadyClock = std::chrono::steady_clock;

// Ample on a quiet machine for anything that a test waits for.
inline constexpr std::chrono::nanoseconds kHangs = std::chrono::seconds(60);
inline constexpr double kMaxSlowdown = 20.0;
// Measurements before a test fails: a single one may hit a quiet moment.
inline constexpr int kMeasurements = 5;
// Time of the work below on a quiet core of 3 GHz.
inline constexpr std::chrono::duration<double> kReferenceTime = std::chrono::milliseconds(12);

inline constexpr int kRounds = 5'000'000;

inline void do_arithmetic(int rounds) {
  static std::atomic<std::uint64_t> sink;  // so that the work is not optimised away
  std::uint64_t value = 88172645463325252U;
  for (int i = 0; i < rounds; ++i) {
    value ^= value << 13U;
    value ^= value >> 7U;
    value ^= value << 17U;
  }
  sink = value;
}

inline void hand_token_around(int turns) {
  std::binary_semaphore ours{0};
  std::binary_semaphore theirs{0};
  std::thread other([&] {
    for (int i = 0; i < turns; ++i) {
      theirs.acquire();
      ours.release();
    }
  });
  for (int i = 0; i < turns; ++i) {
    theirs.release();
    ours.acquire();
  }
  other.join();
}

// At least 1: limits never shrink. At most kMaxSlowdown: one long wait for a processor does not
// make a slow machine.
inline double slowdown() {
  constexpr int kTurns = 30;
  const auto begin = SteadyClock::now();
  do_arithmetic(kRounds);
  hand_token_around(kTurns);
  const std::chrono::duration<double> took = SteadyClock::now() - begin;
  return std::clamp(took / kReferenceTime, 1.0, kMaxSlowdown);
}

// The limit of a wait for which `quiet` is ample on a quiet machine. Uses the slowest measurement
// of this process so far, and measures again if the last one is a second old: the load may have
// grown.
inline std::chrono::nanoseconds patience(std::chrono::nanoseconds quiet) {
  static std::mutex mutex;
  static double slowest = 0.0;
  static SteadyClock::time_point measured;
  const std::lock_guard lock(mutex);
  if (slowest == 0.0 || SteadyClock::now() - measured > std::chrono::seconds(1)) {
    slowest = std::max(slowest, slowdown());
    measured = SteadyClock::now();
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(quiet * slowest);
}

// The end of a wait. The machine's speed is measured only after the quiet machine's limit.
class Limit {
 public:
  explicit Limit(std::chrono::nanoseconds quiet = kHangs) : quiet_(quiet), end_(began_ + quiet) {}

  // Time until the limit; zero once it is over for good.
  std::chrono::nanoseconds left() {
    if (SteadyClock::now() >= end_) {
      double slowest = 1.0;
      for (int i = 0; i < kMeasurements; ++i) {
        slowest = std::max(slowest, slowdown());
      }
      end_ = std::max(
          end_, began_ + std::chrono::duration_cast<std::chrono::nanoseconds>(quiet_ * slowest));
    }
    return std::max(std::chrono::nanoseconds(0),
                    std::chrono::nanoseconds(end_ - SteadyClock::now()));
  }
  bool is_over() { return left() == std::chrono::nanoseconds(0); }

 private:
  std::chrono::nanoseconds quiet_;
  SteadyClock::time_point began_ = SteadyClock::now();
  SteadyClock::time_point end_;
};

// Repeats a wait that takes a duration, such as one on a condition variable, until it succeeds.
// Returns false at the limit.
template <typename Wait>
bool wait_patiently(const Wait& wait, std::chrono::nanoseconds quiet = kHangs) {
  Limit limit(quiet);
  for (;;) {
    const std::chrono::nanoseconds left = limit.left();
    if (wait(left)) {
      return true;
    }
    if (left == std::chrono::nanoseconds(0)) {
      return false;
    }
  }
}

// poll(2) of one descriptor. Returns false at the limit.
inline bool poll_patiently(pollfd& waiting, std::chrono::nanoseconds quiet = kHangs) {
  return wait_patiently(
      [&](std::chrono::nanoseconds left) {
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left);
        return ::poll(&waiting, 1, static_cast<int>(ms.count())) > 0;
      },
      quiet);
}

// Looks every millisecond until the condition holds. Returns false at the limit.
template <typename Condition>
bool wait_until(const Condition& condition, std::chrono::nanoseconds quiet = kHangs) {
  Limit limit(quiet);
  while (!condition()) {
    if (limit.is_over()) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Processor time that `work` takes on the calling thread.
template <typename Work>
std::chrono::nanoseconds processor_time(const Work& work) {
  const auto used = [] {
    timespec time = {};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  const std::chrono::nanoseconds before = used();
  work();
  return used() - before;
}

// Processor time that `work` would take on the reference machine: it is divided by that of the
// arithmetic, measured before and after on this thread.
template <typename Work>
std::chrono::nanoseconds reference_time(const Work& work) {
  const auto calibrate = [] { return processor_time([] { do_arithmetic(kRounds); }); };
  const std::chrono::nanoseconds before = calibrate();
  const std::chrono::duration<double> took = processor_time(work);
  const std::chrono::duration<double> arithmetic = std::max(before, calibrate());
  return std::chrono::duration_cast<std::chrono::nanoseconds>(kReferenceTime * (took / arithmetic));
}

}  // namespace spillway::harness
