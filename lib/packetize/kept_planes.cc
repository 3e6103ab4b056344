// SPDX-License-Identifier: Apache-2.0
#include "packetize/kept_planes.h"

#include <utility>

namespace spillway::packetize {

std::size_t plane_stride(const PacketPlan& plan) {
  return plan.coordinates_per_packet() / 8 * plan.planes();
}

std::size_t plane_memory_bytes(const PacketPlan& plan) {
  return plan.packet_count() * plane_stride(plan);
}

KeptPlanes KeptPlanes::make(const PacketPlan& plan) {
  return make_in(plan, PlaneMemory(new std::uint8_t[plane_memory_bytes(plan)]));
}

KeptPlanes KeptPlanes::make_in(const PacketPlan& plan, PlaneMemory memory) {
  return {std::move(memory), std::vector<codec::RowHeader>(plan.layout().row_count()),
          std::vector<std::uint16_t>(plan.packet_count())};
}

wire::DataHeader packet_header(const PacketPlan& plan, std::size_t packet,
                               const codec::RowHeader& row) {
  const PacketPlace place = plan.place(packet);
  wire::DataHeader header;
  header.stamp.packet = static_cast<std::uint16_t>(packet);
  header.stamp.last = packet + 1 == plan.packet_count();
  header.row_log2 = static_cast<std::uint8_t>(plan.layout().row(place.row).log2_length);
  header.rotations = static_cast<std::uint8_t>(row.rotations);
  header.planes = static_cast<std::uint8_t>(plan.planes());
  header.row = static_cast<std::uint16_t>(place.row);
  header.slot = static_cast<std::uint8_t>(place.slot);
  header.quanta = static_cast<std::uint16_t>(plan.quanta());
  header.scale = row.scale;
  header.head_bytes = static_cast<std::uint16_t>(plan.head_bytes(place.count));
  return header;
}

}  // namespace spillway::packetize
