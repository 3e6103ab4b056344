// SPDX-License-Identifier: Apache-2.0
//
// Joins what was seen of packets at hosts and in the switch to one path per packet, and determines
// what happened to each. A packet is identified by its header, which differs between any two
// packets of a transport, and by the host it is for. If several packets share both, the first that
// left is taken to be the first that was decided about and the first that arrived.
//
// Sights and events may come in any order, and any of them may be missing. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "switch/dataplane/bpf/switch_maps.h"
#include "switch/dataplane/port.h"
#include "wire/packet.h"

namespace spillway::lab {

// One Spillway packet at one host's interface, read from the first bytes of its frame, and all that
// was seen during a run. A frame that a switch trimmed and left with stale lengths is recognized as
// well: only the payload's header counts, not the lengths around it. No state; any thread.

struct PacketCapture {
  base::Instant at;  // by the monotonic clock, like switches' events
  spillway_packet_header header = {};
  std::uint32_t bytes = 0;  // of the frame
  std::uint32_t host = 0;   // whose interface it was seen at
  std::uint32_t to = 0;     // the host it is for
  bool leaves = false;      // else it arrives
  std::uint8_t ecn = 0;
};

// Fills in header, bytes and ecn. `frame` is the beginning of the frame, `bytes` its whole length.
std::optional<PacketCapture> read_capture(base::MutableByteView frame, std::uint32_t bytes);

using HardwareAddress = std::array<std::uint8_t, 6>;
// The address of the frame's receiver. The frame must have an Ethernet header.
HardwareAddress receiver_of(base::ByteView frame);

struct PacketLog {
  std::vector<std::string> hosts;  // empty: hosts were not watched
  std::vector<std::string> ports;  // of the switch that reports, port n to host n; empty: none
                                   // reports
  std::vector<PacketCapture> captures;
  std::vector<spillway_event> events;
  std::uint64_t left_out = 0;  // packets beyond the limit
  std::uint64_t missed = 0;    // captures that the kernel had no room for
};

// Options for following the packets of a lab, and the results in numbers: plain values.

struct TraceOptions {
  std::string path;               // of the Chrome trace; empty: packets are not followed
  std::size_t packets = 200'000;  // kept at most
};

// The first ones equal a switch's decisions (enum spillway_reason).
enum class PacketOutcome : std::uint8_t {
  kWhole = SPILLWAY_REASON_ADMITTED,
  kMarked = SPILLWAY_REASON_MARKED,
  kTrimmed = SPILLWAY_REASON_TRIMMED,
  kDiverted = SPILLWAY_REASON_DIVERTED,
  kQueueFull = SPILLWAY_REASON_QUEUE_FULL,
  kEarly = SPILLWAY_REASON_EARLY,
  kRed = SPILLWAY_REASON_RED,
  kControlFull = SPILLWAY_REASON_CONTROL_FULL,
  kLost,    // neither arrived nor dropped by a decision
  kUnseen,  // arrived, but its departure was not seen: whole or trimmed
};
inline constexpr std::size_t kPacketOutcomes = 10;
std::string_view outcome_name(PacketOutcome outcome);

struct TraceSummary {
  std::array<std::uint64_t, kPacketOutcomes> packets = {};  // by PacketOutcome
  std::uint64_t left_out = 0;                               // packets beyond the limit
  std::uint64_t missed = 0;  // captures and events that the kernel had no room for
  // From the switch's decision to the arrival; without a switch that reports, from the departure.
  base::Duration median;
  base::Duration p99;

  std::uint64_t of(PacketOutcome outcome) const {
    return packets[static_cast<std::size_t>(outcome)];
  }
};

// The sightings of one packet, in order; null where it was not seen. At least one is set.
struct PacketPath {
  const PacketCapture* left = nullptr;
  const spillway_event* decided = nullptr;
  const PacketCapture* arrived = nullptr;

  const spillway_packet_header& header() const;
  std::uint32_t to() const;
  base::Instant begin() const;
  // Start of the bar between departure and arrival: the decision, but not before the departure,
  // whatever the clocks say. Without a decision it is the departure.
  std::optional<base::Instant> inside_from() const;
  bool is_dropped() const;  // by the switch, or by a fault of the link after it
};

base::Instant time_of(const spillway_event& event);

// Sorted by begin(); they point into the log. If packets were left out, paths without a departure
// are left out, too.
std::vector<PacketPath> join_paths(const PacketLog& log);

PacketOutcome outcome_of(const PacketPath& path, const PacketLog& log);

TraceSummary summarise_paths(const std::vector<PacketPath>& paths, const PacketLog& log);

}  // namespace spillway::lab
