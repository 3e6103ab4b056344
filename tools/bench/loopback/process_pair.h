// SPDX-License-Identifier: Apache-2.0
//
// Two processes that measure something together, each on a core of its own: a sender and a
// receiver, started at the same time. A connected stream lets them exchange ports and notice that
// the other has ended. Each returns a figure; its CPU time is added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/units.h"
#include "net/address.h"

namespace spillway::bench {

struct SideResult {
  double bytes = 0.0;        // counted by the side
  double seconds = 0.0;      // duration of that count
  double cpu_seconds = 0.0;  // user and system, over the side's whole life
  double cycles = 0.0;       // over the side's whole life; 0 if the machine hides them
  double extra = 0.0;        // measurement-specific
};

// Runs on the side's process; `stream` leads to the other side.
using Side = std::function<SideResult(int stream)>;

// Throws CommandError if a process cannot be started or dies.
std::pair<SideResult, SideResult> run_pair(const Side& sender, const Side& receiver);

inline constexpr std::size_t kMaxGsoBytes = 65000;
inline constexpr int kSocketBufferBytes = 4 * 1024 * 1024;

// ---- helpers for both sides
net::SocketAddress loopback(std::uint16_t port);

base::Instant now();
double seconds_between(base::Instant a, base::Instant b);
void sleep_until(base::Instant when);

// Throw CommandError if the other side is gone.
void tell_port(int stream, std::uint16_t port);
std::uint16_t hear_port(int stream);

// True if the other side has ended.
bool is_done(int stream, int wait_milliseconds = 0);

}  // namespace spillway::bench
