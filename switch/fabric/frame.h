// SPDX-License-Identifier: Apache-2.0
//
// Reads and changes of an Ethernet frame by a user-space switch: dataplane/frame.h for contiguous
// frames, plus what only user space needs. Functions that change a frame ignore frames that they do
// not understand. No state; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "switch/dataplane/frame.h"

namespace spillway::fabric {

inline constexpr std::size_t kShortestFrame = 60;  // shorter ones are padded on a real wire

enum class FrameKind : std::uint8_t {
  kOther,
  kSpillwayData,
  kSpillwayControl,
  kSpillwaySum,        // a sum packet with words, whole or trimmed
  kSpillwaySumControl  // a sum packet without words
};

struct FrameInfo {
  FrameKind kind = FrameKind::kOther;
  std::uint8_t dscp = 0;
  std::uint8_t ecn = 0;
  std::uint8_t importance = 0;  // Spillway's data and sums only
  std::uint8_t priority = 0;
  std::uint32_t label = 0;  // equal for all frames of a flow: addresses, protocol and ports
};

FrameInfo inspect_frame(base::ByteView frame);

// Classifies a UDP payload. Fills in importance and priority for data and sums.
FrameKind inspect_payload(base::ByteView payload, FrameInfo& info);

// Corrects the IP and UDP lengths of a frame that was cut to this size, as far as `lengths` says
// (dataplane/port.h).
void fix_lengths(base::MutableByteView frame, std::uint8_t lengths = SPILLWAY_LENGTHS_FIXED);

// Writes DSCP and ECN. A wrong IPv4 checksum stays wrong.
void set_traffic_class(base::MutableByteView frame, std::uint8_t dscp, std::uint8_t ecn);

// Computes the TCP or UDP checksum of a frame whose sender left that to a card.
void complete_checksum(base::MutableByteView frame);

}  // namespace spillway::fabric
