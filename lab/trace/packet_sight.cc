// SPDX-License-Identifier: Apache-2.0
#include "lab/trace/packet_sight.h"

#include <algorithm>
#include <cstring>

#include "switch/dataplane/frame.h"

namespace spillway::lab {

std::optional<PacketSight> read_sight(base::MutableByteView frame, std::uint32_t bytes) {
  if (frame.empty()) {
    return std::nullopt;
  }
  const std::uint8_t* end = frame.data() + frame.size();
  spillway_layout layout = {};
  spillway_find_layout(frame.data(), end, &layout);
  const std::uint8_t* udp = spillway_udp_of(frame.data(), end, &layout);
  const std::uint32_t headers = layout.transport + SPILLWAY_UDP_HEADER;
  if (udp == nullptr ||
      headers + sizeof(spillway_data_header) > std::min<std::size_t>(bytes, frame.size())) {
    return std::nullopt;
  }
  spillway_frame read = {};
  spillway_read_payload(udp + SPILLWAY_UDP_HEADER, bytes - headers, &read);
  if (read.flags == 0) {
    return std::nullopt;
  }
  PacketSight sight;
  sight.bytes = bytes;
  sight.ecn = spillway_traffic_class(frame.data(), end, &layout) & 0x03;
  std::memcpy(&sight.header, udp + SPILLWAY_UDP_HEADER, sizeof(sight.header));
  return sight;
}

HardwareAddress receiver_of(base::ByteView frame) {
  HardwareAddress address;
  std::copy_n(frame.data(), address.size(), address.begin());
  return address;
}

}  // namespace spillway::lab
