// SPDX-License-Identifier: Apache-2.0
//
// What the two sides of a measurement on loopback have in common: time, addresses, and how they
// tell each other their ports and that they are done, over the stream between them
// (process_pair.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/units.h"
#include "net/address.h"

namespace spillway::cli {

inline constexpr std::size_t kMostGsoBytes = 65000;
inline constexpr int kSocketBufferBytes = 4 * 1024 * 1024;

net::SocketAddress loopback(std::uint16_t port);

base::Instant now();
double seconds_between(base::Instant a, base::Instant b);

// Throw CommandError when the other side is gone.
void tell_port(int stream, std::uint16_t port);
std::uint16_t hear_port(int stream);

// Whether the other side has ended.
bool is_done(int stream, int wait_milliseconds = 0);

}  // namespace spillway::cli
