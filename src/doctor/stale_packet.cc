// SPDX-License-Identifier: Apache-2.0
#include "doctor/stale_packet.h"

#include "dataplane/frame.h"

namespace spillway::doctor {
namespace {

// Of a packet that begins with its IP header; without a transport where it is not understood.
spillway_layout layout_of(base::ByteView packet) {
  spillway_layout layout = {};
  const std::uint8_t* end = packet.data() + packet.size();
  const unsigned version = packet.empty() ? 0 : packet[0] >> 4;
  if (version == 4) {
    spillway_find_ipv4(packet.data(), end, 0, &layout);
  } else if (version == 6) {
    spillway_find_ipv6(packet.data(), end, 0, &layout);
  }
  return layout;
}

}  // namespace

std::optional<base::ByteView> stale_payload(base::ByteView packet, std::uint16_t port) {
  const spillway_layout layout = layout_of(packet);
  const std::uint8_t* end = packet.data() + packet.size();
  const std::uint8_t* udp = spillway_udp_of(packet.data(), end, &layout);
  if (udp == nullptr || spillway_load_be16(udp + 2) != port) {
    return std::nullopt;
  }
  const bool is_stale =
      layout.end > packet.size() || layout.transport + spillway_load_be16(udp + 4) > packet.size();
  return is_stale ? std::optional(packet.subspan(layout.transport + SPILLWAY_UDP_HEADER))
                  : std::nullopt;
}

}  // namespace spillway::doctor
