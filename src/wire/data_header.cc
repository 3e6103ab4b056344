// SPDX-License-Identifier: Apache-2.0
#include "wire/data_header.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "wire/packet_check.h"

namespace spillway::wire {

const char* packet_fault_name(PacketFault fault) {
  switch (fault) {
    case PacketFault::kNone:
      return "none";
    case PacketFault::kTooShort:
      return "too-short";
    case PacketFault::kTooLong:
      return "too-long";
    case PacketFault::kVersion:
      return "version";
    case PacketFault::kType:
      return "type";
    case PacketFault::kField:
      return "field";
    case PacketFault::kAuthMode:
      return "auth-mode";
    case PacketFault::kCutInHead:
      return "cut-in-head";
    case PacketFault::kHeadCheck:
      return "head-check";
  }
  return "unknown";
}

void write_data_header(const DataHeader& header, base::MutableByteView out) {
  SPILLWAY_CHECK(header.priority < 8 && header.importance < 8 &&
                 header.rotations <= SPILLWAY_MAX_ROTATIONS &&
                 header.planes <= SPILLWAY_MAX_PLANES && header.row_log2 <= SPILLWAY_MAX_ROW_LOG2 &&
                 out.size() >= sizeof(spillway_data_header));
  spillway_data_header raw{};
  raw.common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_DATA;
  raw.common.flags = static_cast<__u8>((header.keyed ? SPILLWAY_FLAG_KEYED : 0) |
                                       (header.last ? SPILLWAY_FLAG_LAST : 0) |
                                       (header.retransmit ? SPILLWAY_FLAG_RETRANSMIT : 0) |
                                       (header.report ? SPILLWAY_FLAG_REPORT : 0));
  raw.common.job = header.job;
  raw.common.epoch = header.epoch;
  raw.common.source = header.message.source;
  raw.common.step = header.message.step;
  raw.common.bucket = header.message.bucket;
  raw.common.shard = header.message.shard;
  raw.common.service = static_cast<__u8>(static_cast<unsigned>(header.message.phase) << 6 |
                                         header.priority << 3 | header.importance);
  raw.common.path = header.path;
  raw.common.packet = header.packet;
  raw.common.timestamp_us = header.timestamp_us;
  raw.code = static_cast<__u8>(static_cast<unsigned>(header.codec) << 4 | header.row_log2);
  raw.planes = static_cast<__u8>(header.rotations << 6 | header.planes);
  raw.row = header.row;
  raw.slot = header.slot;
  raw.quanta = header.quanta;
  raw.head_words = static_cast<__u8>(header.head_bytes / 4);
  raw.path_sequence = header.path_sequence;
  raw.scale = std::bit_cast<__u32>(header.scale);
  SPILLWAY_CHECK(spillway_is_valid_data(&raw));
  std::memcpy(out.data(), &raw, sizeof raw);
}

PacketFault read_data_header(base::ByteView packet, DataHeader& header) {
  spillway_data_header raw;
  if (packet.size() < sizeof raw) {
    return PacketFault::kTooShort;
  }
  if (packet.size() > SPILLWAY_MAX_PACKET) {
    return PacketFault::kTooLong;
  }
  std::memcpy(&raw, packet.data(), sizeof raw);
  if (spillway_version_of(raw.common.version_type) != SPILLWAY_WIRE_VERSION) {
    return PacketFault::kVersion;
  }
  if (spillway_type_of(raw.common.version_type) != SPILLWAY_TYPE_DATA) {
    return PacketFault::kType;
  }
  if (!spillway_is_valid_data(&raw)) {
    return PacketFault::kField;
  }
  header.job = raw.common.job;
  header.epoch = raw.common.epoch;
  header.message = {.step = raw.common.step,
                    .bucket = raw.common.bucket,
                    .shard = raw.common.shard,
                    .source = raw.common.source,
                    .phase = static_cast<Phase>(spillway_phase_of(raw.common.service))};
  header.packet = raw.common.packet;
  header.keyed = (raw.common.flags & SPILLWAY_FLAG_KEYED) != 0;
  header.last = (raw.common.flags & SPILLWAY_FLAG_LAST) != 0;
  header.retransmit = (raw.common.flags & SPILLWAY_FLAG_RETRANSMIT) != 0;
  header.report = (raw.common.flags & SPILLWAY_FLAG_REPORT) != 0;
  header.priority = spillway_priority_of(raw.common.service);
  header.importance = spillway_importance_of(raw.common.service);
  header.path = raw.common.path;
  header.timestamp_us = raw.common.timestamp_us;
  header.codec = static_cast<Codec>(spillway_codec_of(raw.code));
  header.row_log2 = spillway_row_log2_of(raw.code);
  header.rotations = spillway_rotations_of(raw.planes);
  header.planes = spillway_planes_of(raw.planes);
  header.row = raw.row;
  header.slot = raw.slot;
  header.quanta = raw.quanta;
  header.head_bytes = static_cast<std::uint16_t>(raw.head_words * 4);
  header.path_sequence = raw.path_sequence;
  header.scale = std::bit_cast<float>(raw.scale);
  return PacketFault::kNone;
}

}  // namespace spillway::wire
