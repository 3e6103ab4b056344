// SPDX-License-Identifier: Apache-2.0
#include "sim/stacks/datagram_packet.h"

#include <algorithm>

#include "wire/data_packet.h"

namespace spillway::sim {
namespace {

void stamp_sum(base::ByteView datagram, bool is_control, Packet& packet) {
  const std::uint8_t service = datagram[offsetof(spillway_packet_header, service)];
  packet.kind = is_control ? PacketKind::kSpillwaySumControl : PacketKind::kSpillwaySum;
  packet.priority = spillway_priority_of(service);
  packet.importance = spillway_importance_of(service);
}

void stamp_data(base::ByteView datagram, Packet& packet) {
  wire::DataHeader header;
  wire::read_data_header(datagram, header);
  packet.kind = PacketKind::kSpillwayData;
  packet.priority = header.stamp.priority;
  packet.importance = header.stamp.importance;
  packet.data = header.stamp;
}

}  // namespace

void fill_packet(const transport::Route& route, base::ByteView datagram, PacketPool& pool,
                 Packet& packet) {
  packet.dscp = route.dscp;
  packet.ecn = route.ecn;
  packet.kind = PacketKind::kSpillwayControl;
  packet.priority = SPILLWAY_PRIORITIES - 1;
  packet.importance = SPILLWAY_IMPORTANCE_REQUIRED;
  if (spillway_type_of(datagram[0]) == SPILLWAY_TYPE_SUM) {
    stamp_sum(datagram, route.is_control, packet);
  } else if (!route.is_control) {
    stamp_data(datagram, packet);
  }
  std::ranges::copy(datagram, pool.attach_payload(packet, datagram.size()).begin());
  packet.bytes = static_cast<std::uint32_t>(datagram.size()) + kFrameHeaderBytes;
}

}  // namespace spillway::sim
