// SPDX-License-Identifier: Apache-2.0
//
// One Spillway packet at one host's interface, read from the first bytes of its frame, and all that
// was seen during a run. A frame that a switch trimmed and left with stale lengths is recognized as
// well: only the payload's header counts, not the lengths around it. No state; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "switch/dataplane/bpf/switch_maps.h"
#include "wire/packet.h"

namespace spillway::lab {

struct PacketSight {
  base::Instant at;  // by the monotonic clock, like switches' events
  spillway_packet_header header = {};
  std::uint32_t bytes = 0;  // of the frame
  std::uint32_t host = 0;   // whose interface it was seen at
  std::uint32_t to = 0;     // the host it is for
  bool leaves = false;      // else it arrives
  std::uint8_t ecn = 0;
};

// Fills in header, bytes and ecn. `frame` is the beginning of the frame, `bytes` its whole length.
std::optional<PacketSight> read_sight(base::MutableByteView frame, std::uint32_t bytes);

using HardwareAddress = std::array<std::uint8_t, 6>;
// The address of the frame's receiver. The frame must have an Ethernet header.
HardwareAddress receiver_of(base::ByteView frame);

struct PacketLog {
  std::vector<std::string> hosts;  // empty: hosts were not watched
  std::vector<std::string> ports;  // of the switch that reports, port n to host n; empty: none
                                   // reports
  std::vector<PacketSight> sights;
  std::vector<spillway_event> events;
  std::uint64_t left_out = 0;  // packets beyond the limit
  std::uint64_t missed = 0;    // sights that the kernel had no room for
};

}  // namespace spillway::lab
