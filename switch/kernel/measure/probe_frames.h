// SPDX-License-Identifier: Apache-2.0
//
// Frames to test the switch's programs with: whole, correct frames of every shape that a switch
// understands, all for the same receiver. For benchmarks and tests. No state, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace spillway::kernel {

using Frame = std::vector<std::uint8_t>;

struct FrameShape {
  bool is_ipv6 = false;
  // Types of the VLAN tags, the outermost first; all have VLAN kProbeVlan.
  std::vector<std::uint16_t> tags{};
  unsigned option_words = 0;  // IPv4 only
  std::uint8_t traffic_class = 0;
};

inline constexpr std::uint16_t kProbeVlan = 5;
inline constexpr std::uint8_t kProbeReceiver[6] = {0x02, 0x53, 0x57, 0, 0, 1};

// A UDP datagram with correct lengths and checksums.
Frame frame_of(const FrameShape& shape, base::ByteView payload);

// Payload of a Spillway data packet: a valid header, then zeros.
std::vector<std::uint8_t> data_payload(std::size_t bytes, std::uint8_t importance);

// A Spillway data packet in a frame of `frame_bytes` bytes, headers included.
Frame data_frame(const FrameShape& shape, std::size_t frame_bytes, std::uint8_t importance);

}  // namespace spillway::kernel
