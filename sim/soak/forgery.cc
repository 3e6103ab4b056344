// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/forgery.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "wire/data_packet.h"
#include "wire/widen.h"

namespace spillway::sim {
namespace {

bool is_data(base::ByteView packet) {
  return spillway_type_of(packet[0]) == SPILLWAY_TYPE_DATA;
}

wire::DataHeader data_header_of(base::ByteView packet) {
  wire::DataHeader header;
  SPILLWAY_CHECK(wire::read_data_header(packet, header) == wire::PacketFault::kNone);
  return header;
}

// The planes of a packet as sent, without the checks between them.
PacketBytes planes_of(base::ByteView packet, const wire::DataHeader& header) {
  const auto head = packet.begin() + sizeof(spillway_data_header) + SPILLWAY_CHECK_SIZE;
  PacketBytes planes(head, head + header.head_bytes);
  for (std::size_t at = header.head_end(); at < packet.size();) {
    const std::size_t segment =
        std::min<std::size_t>(SPILLWAY_TAIL_SEGMENT, packet.size() - at - SPILLWAY_CHECK_SIZE);
    planes.insert(planes.end(), packet.begin() + static_cast<std::ptrdiff_t>(at),
                  packet.begin() + static_cast<std::ptrdiff_t>(at + segment));
    at += segment + SPILLWAY_CHECK_SIZE;
  }
  return planes;
}

PacketBytes resealed_data(base::ByteView packet, const wire::PacketAuth& auth, std::uint64_t near) {
  wire::DataHeader header = data_header_of(packet);
  header.stamp.number = wire::widen(static_cast<std::uint32_t>(header.stamp.number), near);
  if (header.encrypted) {
    header.scale = header.rotations == 0 ? 0.0F : 1.0F;  // encrypted, so not known
  }
  PacketBytes out(header.packet_size());
  wire::write_data_packet(header, planes_of(packet, header), auth, out);
  return out;
}

PacketBytes resealed_control(base::ByteView packet, const wire::PacketAuth& auth,
                             std::uint64_t near) {
  wire::ControlPacket control;
  SPILLWAY_CHECK(wire::read_control_header(packet, control) == wire::PacketFault::kNone);
  control.sequence = wire::widen(static_cast<std::uint32_t>(control.sequence), near);
  PacketBytes out(packet.begin(), packet.end());
  const std::size_t covered = out.size() - SPILLWAY_CHECK_SIZE;
  const wire::Check check = auth.check(control.name(), base::ByteView(out).first(covered));
  std::memcpy(out.data() + covered, check.bytes.data(), SPILLWAY_CHECK_SIZE);
  return out;
}

}  // namespace

bool needs_tags(Attack attack) {
  switch (attack) {
    case Attack::kReplay:
    case Attack::kCut:
    case Attack::kFlip:
    case Attack::kNoise:
      return false;
    default:
      return true;
  }
}

PacketEnds ends_of(base::ByteView packet) {
  return {
      base::load_le<std::uint16_t>(packet.data() + offsetof(spillway_packet_header, source)),
      base::load_le<std::uint16_t>(packet.data() + offsetof(spillway_packet_header, destination))};
}

void set_ends(PacketBytes& packet, const PacketEnds& ends) {
  base::store_le(packet.data() + offsetof(spillway_packet_header, source), ends.source);
  base::store_le(packet.data() + offsetof(spillway_packet_header, destination), ends.destination);
}

void set_epoch(PacketBytes& packet, std::uint64_t epoch) {
  base::store_le(packet.data() + offsetof(spillway_packet_header, epoch),
                 static_cast<std::uint16_t>(epoch));
}

void push_number(PacketBytes& packet, std::uint32_t by) {
  std::uint8_t* const number =
      packet.data() + (is_data(packet) ? offsetof(spillway_data_header, number)
                                       : offsetof(spillway_control_header, sequence));
  base::store_le(number, base::load_le<std::uint32_t>(number) + by);
}

std::size_t trusted_end(base::ByteView packet) {
  return is_data(packet) ? data_header_of(packet).head_end() : packet.size();
}

PacketBytes resealed(base::ByteView packet, const wire::PacketAuth& auth, std::uint64_t near) {
  return is_data(packet) ? resealed_data(packet, auth, near) : resealed_control(packet, auth, near);
}

}  // namespace spillway::sim
