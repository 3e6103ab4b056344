// SPDX-License-Identifier: Apache-2.0
//
// One Spillway packet at one host's interface, read from the first bytes of its frame, and all that
// was seen of a run. A frame that a switch cut and left with stale lengths is Spillway's too: the
// payload's header decides, the lengths around it are not asked. No state; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "dataplane/bpf/switch_maps.h"
#include "wire/packet.h"

namespace spillway::lab {

struct PacketSight {
  base::Instant at;  // by the monotonic clock, as switches' events
  spillway_packet_header header = {};
  std::uint32_t bytes = 0;  // of the frame
  std::uint32_t host = 0;   // at whose interface
  std::uint32_t to = 0;     // the host it is for
  bool leaves = false;      // else it arrives
  std::uint8_t ecn = 0;
};

// Header, bytes and ecn are filled in. `frame` is where the frame begins, `bytes` its whole length.
std::optional<PacketSight> read_sight(base::MutableByteView frame, std::uint32_t bytes);

using HardwareAddress = std::array<std::uint8_t, 6>;
// Of the frame's receiver. The frame has an Ethernet header.
HardwareAddress receiver_of(base::ByteView frame);

struct PacketLog {
  std::vector<std::string> hosts;  // empty: hosts were not watched
  std::vector<std::string> ports;  // of the switch that tells, port n to host n; empty: none tells
  std::vector<PacketSight> sights;
  std::vector<spillway_event> events;
  std::uint64_t left_out = 0;  // packets beyond the limit
  std::uint64_t missed = 0;    // sights that the kernel had no room for
};

}  // namespace spillway::lab
