// SPDX-License-Identifier: Apache-2.0
//
// How much slower this machine is right now than a quiet reference machine, for the limits of
// tests. A test waits for a condition; a limit only ends a hung test, and patience() makes that
// limit grow with the machine's load.
//
// slowdown() times a fixed piece of work: arithmetic, and threads that hand a token to each other,
// so that both a slow processor and a long run queue count. It takes about 12 ms on a quiet
// machine. C++ tests include this header; Python and shell tests run tests/harness/slowdown.cc as a
// program.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <semaphore>
#include <thread>

namespace spillway::harness {

inline constexpr double kMaxSlowdown = 20.0;
// Time of the work below on a quiet core of 3 GHz.
inline constexpr std::chrono::duration<double> kReferenceTime = std::chrono::milliseconds(12);

inline std::uint64_t do_arithmetic(int rounds) {
  std::uint64_t value = 88172645463325252U;
  for (int i = 0; i < rounds; ++i) {
    value ^= value << 13U;
    value ^= value >> 7U;
    value ^= value << 17U;
  }
  return value;
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
  constexpr int kRounds = 5'000'000;
  constexpr int kTurns = 30;
  const auto begin = std::chrono::steady_clock::now();
  static std::atomic<std::uint64_t> sink;  // so that the work is not optimised away
  sink = do_arithmetic(kRounds);
  hand_token_around(kTurns);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return std::clamp(took / kReferenceTime, 1.0, kMaxSlowdown);
}

// The limit of a wait for which `quiet` is ample on a quiet machine.
inline std::chrono::nanoseconds patience(std::chrono::nanoseconds quiet) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(quiet * slowdown());
}

}  // namespace spillway::harness
