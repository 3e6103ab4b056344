// SPDX-License-Identifier: Apache-2.0
#include "doctor/burst_packet.h"

#include "base/check.h"
#include "wire/data_packet.h"
#include "wire/packet.h"
#include "wire/traffic_class.h"

namespace spillway::doctor {
namespace {

constexpr std::uint16_t kJob = 0xFFFF;
constexpr std::uint8_t kPriority = 0;
constexpr std::uint8_t kImportance = SPILLWAY_IMPORTANCE_MARKED;
constexpr std::size_t kLeastLimit = 256;
// With nine planes the largest packet of 255 quanta is longer than any MTU allows, and a quantum
// more or less is 36 bytes.
constexpr std::uint8_t kPlanes = 9;

wire::DataHeader header_of(std::uint32_t tag, std::uint8_t quanta) {
  wire::DataHeader header;
  header.job = kJob;
  header.message.step = tag;
  header.priority = kPriority;
  header.importance = kImportance;
  header.row_log2 = SPILLWAY_MAX_ROW_LOG2;
  header.planes = kPlanes;
  header.quanta = quanta;
  header.head_bytes = 4;
  return header;
}

}  // namespace

std::uint8_t burst_tos() {
  return static_cast<std::uint8_t>(spillway_dscp_of_priority(kPriority) << 2 |
                                   spillway_ecn_of_importance(kImportance));
}

std::vector<std::uint8_t> make_burst_packet(std::uint32_t tag, std::size_t limit) {
  SPILLWAY_CHECK(limit >= kLeastLimit);
  std::uint8_t quanta = 255;
  while (header_of(tag, quanta).packet_size() > limit) {
    --quanta;
  }
  const wire::DataHeader header = header_of(tag, quanta);
  const std::vector<std::uint8_t> planes(header.plane_bytes());
  std::vector<std::uint8_t> packet(header.packet_size());
  wire::write_data_packet(header, planes, wire::PacketAuth::crc32c(0), packet);
  return packet;
}

std::optional<std::uint32_t> burst_tag_of(base::ByteView payload) {
  constexpr std::uint8_t kVersionType = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_DATA;
  constexpr std::size_t kStep = offsetof(spillway_packet_header, step);
  constexpr std::size_t kJobAt = offsetof(spillway_packet_header, job);
  if (payload.size() < kStep + sizeof(std::uint32_t) || payload[0] != kVersionType ||
      base::load_le<std::uint16_t>(&payload[kJobAt]) != kJob) {
    return std::nullopt;
  }
  return base::load_le<std::uint32_t>(&payload[kStep]);
}

}  // namespace spillway::doctor
