// SPDX-License-Identifier: Apache-2.0
//
// Two processes that measure something together, each on a core of its own: a sender and a
// receiver, started at the same time, each with a connected stream to the other for what they have
// to agree on: their ports, and that they are done. Each returns a figure; what it cost in
// processor time is added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/units.h"
#include "net/address.h"

namespace spillway::bench {

struct SideResult {
  double bytes = 0.0;        // that the side counted
  double seconds = 0.0;      // over which it counted them
  double cpu_seconds = 0.0;  // user and system, over the side's whole life
  double cycles = 0.0;       // of the same; 0 where the machine does not tell
  double extra = 0.0;        // whatever the measurement wants to say
};

// Runs on the side's process; `stream` leads to the other side.
using Side = std::function<SideResult(int stream)>;

// Throws CommandError where a process cannot be started or dies.
std::pair<SideResult, SideResult> run_pair(const Side& sender, const Side& receiver);

inline constexpr std::size_t kMaxGsoBytes = 65000;
inline constexpr int kSocketBufferBytes = 4 * 1024 * 1024;

// ---- what both sides use
net::SocketAddress loopback(std::uint16_t port);

base::Instant now();
double seconds_between(base::Instant a, base::Instant b);
void sleep_until(base::Instant when);

// Throw CommandError when the other side is gone.
void tell_port(int stream, std::uint16_t port);
std::uint16_t hear_port(int stream);

// Whether the other side has ended.
bool is_done(int stream, int wait_milliseconds = 0);

}  // namespace spillway::bench
