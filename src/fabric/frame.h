// SPDX-License-Identifier: Apache-2.0
//
// What a user-space switch reads in an Ethernet frame and what it changes there: dataplane/frame.h
// for frames in one piece, with what only user space wants on top. Functions that change a frame do
// nothing to one they do not understand. No state; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "dataplane/frame.h"

namespace spillway::fabric {

inline constexpr std::size_t kShortestFrame = 60;  // shorter ones are padded on a real wire

enum class FrameKind : std::uint8_t {
  kOther,
  kSpillwayData,
  kSpillwayControl,
  kSpillwaySum,        // a sum packet with words, whole or cut
  kSpillwaySumControl  // one without
};

struct FrameInfo {
  FrameKind kind = FrameKind::kOther;
  std::uint8_t dscp = 0;
  std::uint8_t ecn = 0;
  std::uint8_t importance = 0;  // Spillway's data, and its sums
  std::uint8_t priority = 0;
  std::uint32_t label = 0;  // the same for all frames of a flow: addresses, protocol and ports
};

FrameInfo inspect_frame(base::ByteView frame);

// What a UDP payload is; importance and priority are filled in for data and sums.
FrameKind inspect_payload(base::ByteView payload, FrameInfo& info);

// The frame was cut to this size: makes the lengths of IP and UDP what `lengths` says of them
// (dataplane/port.h).
void fix_lengths(base::MutableByteView frame, std::uint8_t lengths = SPILLWAY_LENGTHS_FIXED);

// Writes DSCP and ECN. An IPv4 header whose checksum was wrong keeps a wrong one.
void set_traffic_class(base::MutableByteView frame, std::uint8_t dscp, std::uint8_t ecn);

// Computes the TCP or UDP checksum, for a frame whose sender left that to a card.
void complete_checksum(base::MutableByteView frame);

}  // namespace spillway::fabric
