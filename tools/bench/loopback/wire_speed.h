// SPDX-License-Identifier: Apache-2.0
//
// How fast bytes get from one process to another on loopback, one core each, and at what cost:
//
//   raw UDP    GSO buffers sent and GRO buffers received as fast as the kernel takes them, contents
//              ignored: the limit for anything that uses UDP sockets
//   TCP        a stream of large writes and reads: the basis of Gloo and MPI
//   Spillway   messages through the transport with everything on: headers, checks, credit, window
//
// Rates count payload, measured by the receiver from its first byte to its last.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"
#include "net/sockets.h"
#include "wire/packet_auth.h"

namespace spillway::bench {

struct WireSpeedOptions {
  unsigned datagram_bytes = 1452;
  double seconds = 3.0;
  net::Offloads offloads;
  std::uint64_t message_bytes = 4'000'000;
  unsigned messages_at_once = 2;
  unsigned paths = 1;
  wire::Protection protection = wire::Protection::kTags;
  base::BitRate garbage{};  // rate of unwanted datagrams sent to the receiver's port
};

struct WireSpeed {
  double gigabits_per_second = 0.0;
  // CPU time and cycles of both sides together; cycles are 0 if the machine hides them.
  double cpu_nanoseconds_per_byte = 0.0;
  double cycles_per_byte = 0.0;
  double lost_share = 0.0;  // raw UDP: of bytes sent; Spillway: retransmitted packets
  double refused = 0.0;     // Spillway: datagrams that failed their checks
};

WireSpeed measure_raw_udp(const WireSpeedOptions& options);
WireSpeed measure_tcp(const WireSpeedOptions& options);
WireSpeed measure_spillway(const WireSpeedOptions& options);
// iperf3's figure, if it is installed.
std::optional<double> iperf3_gigabits_per_second(double seconds);

}  // namespace spillway::bench
