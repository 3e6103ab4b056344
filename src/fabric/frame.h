// SPDX-License-Identifier: Apache-2.0
//
// What a switch reads in an Ethernet frame and what it changes there. Frames come from real
// interfaces: nothing in them is believed before it is checked against the bytes that are there.
//
// Understood are at most one VLAN tag, IPv4 with options, IPv6, UDP and, in it, Spillway. Fragments
// and IPv6 packets with extension headers are carried, but never taken for Spillway's. Functions
// that change a frame do nothing to one they do not understand. No state; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace spillway::fabric {

inline constexpr std::size_t kEthernetHeader = 14;
inline constexpr std::size_t kVlanTag = 4;
inline constexpr std::size_t kShortestFrame = 60;  // shorter ones are padded on a real wire

enum class FrameKind : std::uint8_t { kOther, kSpillwayData, kSpillwayControl };

struct FrameInfo {
  FrameKind kind = FrameKind::kOther;
  std::uint8_t dscp = 0;
  std::uint8_t ecn = 0;
  std::uint8_t importance = 0;  // Spillway's data
  std::uint8_t priority = 0;
  std::uint32_t label = 0;  // the same for all frames of a flow: addresses, protocol and ports
};

FrameInfo inspect_frame(base::ByteView frame);

// What a UDP payload is; importance and priority are filled in for data.
FrameKind inspect_payload(base::ByteView payload, FrameInfo& info);

// The frame was cut to this size: makes the lengths of IP and UDP agree with it. The UDP checksum,
// which covered what is gone, becomes 0 (none) over IPv4 and is computed anew over IPv6.
void fix_lengths(base::MutableByteView frame);

// Writes DSCP and ECN. An IPv4 header whose checksum was wrong keeps a wrong one.
void set_traffic_class(base::MutableByteView frame, std::uint8_t dscp, std::uint8_t ecn);

// Computes the TCP or UDP checksum, for a frame whose sender left that to a card.
void complete_checksum(base::MutableByteView frame);

}  // namespace spillway::fabric
