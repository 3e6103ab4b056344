// SPDX-License-Identifier: Apache-2.0
//
// Data packets for tests: 640 coordinates with 8 planes, so that a plane has 80 bytes and all of
// them 640, whatever is in them.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/message.h"

namespace spillway::transport {

inline constexpr std::uint8_t kTestPlanes = 8;
inline constexpr std::size_t kTestPlanesBytes = 640;

inline wire::DataHeader test_header(const wire::DataStamp& stamp, std::uint16_t head_bytes = 160) {
  wire::DataHeader header{.stamp = stamp};
  header.row_log2 = SPILLWAY_MAX_ROW_LOG2;
  header.rotations = 1;
  header.planes = kTestPlanes;
  header.quanta = 20;
  header.head_bytes = head_bytes;
  header.scale = 1.0F;
  return header;
}

// The trusted planes of a packet. Below: how many whole planes those are.
inline std::vector<std::uint8_t> test_planes(const wire::OpenedPacket& packet,
                                             base::ByteView bytes) {
  std::vector<std::uint8_t> planes(kTestPlanesBytes);
  planes.resize(wire::copy_trusted_planes(bytes, packet, planes).bytes);
  return planes;
}
inline unsigned whole_test_planes(const std::vector<std::uint8_t>& planes) {
  return static_cast<unsigned>(planes.size() / (kTestPlanesBytes / kTestPlanes));
}

}  // namespace spillway::transport
