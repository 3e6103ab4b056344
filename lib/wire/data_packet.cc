// SPDX-License-Identifier: Apache-2.0
#include "wire/data_packet.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>

#include "base/check.h"
#include "wire/packet_check.h"

namespace spillway::wire {
namespace {

constexpr std::size_t kDataHeaderSize = sizeof(spillway_data_header);

// Tail segments that are processed together: all but the last have the same length.
struct SegmentGroup {
  std::size_t count = 0;
  std::size_t length = 0;
  std::size_t last_length = 0;

  std::size_t bytes() const { return (count - 1) * length + last_length; }
};

// The next group of segments, with `plane_bytes` left to process.
SegmentGroup next_segments(std::size_t plane_bytes, std::size_t length) {
  constexpr std::size_t kMaxGroup = PacketAuth::kSegmentsAtOnce;
  const std::size_t left = (plane_bytes + length - 1) / length;
  if (left > kMaxGroup) {
    return {kMaxGroup, length, length};
  }
  return {left, length, plane_bytes - (left - 1) * length};
}

// Like next_segments(), but only `present` bytes arrived: counts whole segments with their checks.
SegmentGroup present_segments(std::size_t plane_bytes, std::size_t present, std::size_t length) {
  const SegmentGroup group = next_segments(plane_bytes, length);
  if (present >= group.bytes() + group.count * SPILLWAY_CHECK_SIZE) {
    return group;
  }
  return {std::min(present / (length + SPILLWAY_CHECK_SIZE), group.count - 1), length, length};
}

// Marks a written header as encrypted and encrypts its scale.
void encrypt_header(const PacketName& name, const PacketAuth& auth, base::MutableByteView bytes) {
  spillway_data_header raw;
  std::memcpy(&raw, bytes.data(), sizeof raw);
  raw.common.flags |= SPILLWAY_FLAG_ENCRYPTED;
  raw.scale = auth.cipher_scale(name, raw.scale);
  std::memcpy(bytes.data(), &raw, sizeof raw);
}

// False if the scale is one that no sender writes.
bool decrypt_scale(const PacketName& name, const PacketAuth& auth, DataHeader& header) {
  const std::uint32_t scale = auth.cipher_scale(name, std::bit_cast<std::uint32_t>(header.scale));
  header.scale = std::bit_cast<float>(scale);
  return header.codec == Codec::kBytes ? scale == 0
                                       : spillway_is_valid_scale(scale, header.rotations) != 0;
}

}  // namespace

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
  SPILLWAY_CHECK(header.stamp.priority < 8 && header.stamp.importance < 8 &&
                 header.rotations <= SPILLWAY_MAX_ROTATIONS &&
                 header.planes <= SPILLWAY_MAX_PLANES && header.row_log2 <= SPILLWAY_MAX_ROW_LOG2 &&
                 out.size() >= kDataHeaderSize);
  spillway_data_header raw{};
  raw.common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_DATA;
  raw.common.flags = static_cast<__u8>((header.encrypted ? SPILLWAY_FLAG_ENCRYPTED : 0) |
                                       (header.stamp.last ? SPILLWAY_FLAG_LAST : 0) |
                                       (header.stamp.retransmit ? SPILLWAY_FLAG_RETRANSMIT : 0) |
                                       (header.stamp.report ? SPILLWAY_FLAG_REPORT : 0) |
                                       (header.stamp.requires_some ? SPILLWAY_FLAG_REQUIRES : 0));
  raw.common.job = header.stamp.job;
  raw.common.epoch = static_cast<__u16>(header.stamp.epoch);
  raw.common.source = header.stamp.message.source;
  raw.common.destination = header.stamp.destination;
  raw.common.operation = static_cast<__u32>(header.stamp.message.operation);
  raw.common.signature = header.stamp.message.signature;
  raw.common.piece = header.stamp.message.piece;
  raw.common.service = static_cast<__u8>(static_cast<unsigned>(header.stamp.message.phase) << 6 |
                                         header.stamp.priority << 3 | header.stamp.importance);
  raw.common.path = header.stamp.path;
  raw.common.packet = header.stamp.packet;
  raw.common.timestamp_us = header.stamp.timestamp_us;
  raw.code = static_cast<__u8>(static_cast<unsigned>(header.codec) << 4 | header.row_log2);
  raw.planes = static_cast<__u8>(header.rotations << 6 | header.planes);
  raw.row = header.row;
  raw.slot = header.slot;
  raw.quanta = static_cast<__u8>(header.quanta % SPILLWAY_MAX_QUANTA);
  raw.head_words = static_cast<__u8>(header.head_bytes / 4);
  raw.number = static_cast<__u32>(header.stamp.number);
  raw.scale = std::bit_cast<__u32>(header.scale);
  SPILLWAY_CHECK(header.quanta > 0 && header.quanta <= SPILLWAY_MAX_QUANTA &&
                 spillway_is_valid_data(&raw));
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
  header.stamp.job = raw.common.job;
  header.stamp.epoch = raw.common.epoch;
  header.stamp.destination = raw.common.destination;
  header.stamp.message = {.operation = raw.common.operation,
                          .signature = raw.common.signature,
                          .piece = raw.common.piece,
                          .source = raw.common.source,
                          .phase = static_cast<Phase>(spillway_phase_of(raw.common.service))};
  header.stamp.packet = raw.common.packet;
  header.encrypted = (raw.common.flags & SPILLWAY_FLAG_ENCRYPTED) != 0;
  header.stamp.last = (raw.common.flags & SPILLWAY_FLAG_LAST) != 0;
  header.stamp.retransmit = (raw.common.flags & SPILLWAY_FLAG_RETRANSMIT) != 0;
  header.stamp.report = (raw.common.flags & SPILLWAY_FLAG_REPORT) != 0;
  header.stamp.requires_some = (raw.common.flags & SPILLWAY_FLAG_REQUIRES) != 0;
  header.stamp.priority = spillway_priority_of(raw.common.service);
  header.stamp.importance = spillway_importance_of(raw.common.service);
  header.stamp.path = raw.common.path;
  header.stamp.timestamp_us = raw.common.timestamp_us;
  header.codec = static_cast<Codec>(spillway_codec_of(raw.code));
  header.row_log2 = spillway_row_log2_of(raw.code);
  header.rotations = spillway_rotations_of(raw.planes);
  header.planes = spillway_planes_of(raw.planes);
  header.row = raw.row;
  header.slot = raw.slot;
  header.quanta =
      static_cast<std::uint16_t>(spillway_coordinates_per_slot(&raw) / SPILLWAY_QUANTUM);
  header.head_bytes = static_cast<std::uint16_t>(raw.head_words * 4);
  header.stamp.number = raw.number;
  header.scale = std::bit_cast<float>(raw.scale);
  return PacketFault::kNone;
}

std::size_t write_data_packet(const DataHeader& header, base::ByteView planes,
                              const PacketAuth& auth, base::MutableByteView out) {
  SPILLWAY_CHECK(planes.size() == header.plane_bytes() && out.size() >= header.packet_size());
  const PacketName name = header.stamp.name();
  const base::MutableByteView header_bytes = out.first(kDataHeaderSize);
  write_data_header(header, header_bytes);
  if (auth.encrypts()) {
    encrypt_header(name, auth, header_bytes);
  }
  std::uint8_t* to = out.data() + kDataHeaderSize;
  const auto append_check = [&](const Check& check) {
    std::memcpy(to, check.bytes.data(), SPILLWAY_CHECK_SIZE);
    to += SPILLWAY_CHECK_SIZE;
  };
  append_check(auth.seal_head(name, header_bytes, planes.first(header.head_bytes),
                              to + SPILLWAY_CHECK_SIZE));
  to += header.head_bytes;
  std::size_t done = header.head_bytes;
  for (std::uint32_t index = 0; done < planes.size();) {
    std::array<Check, PacketAuth::kSegmentsAtOnce> checks;
    const SegmentGroup group = next_segments(planes.size() - done, header.segment_bytes());
    auth.seal_segments(name, index,
                       {.from = planes.data() + done,
                        .from_stride = group.length,
                        .to = to,
                        .to_stride = group.length + SPILLWAY_CHECK_SIZE,
                        .length = group.length,
                        .last_length = group.last_length},
                       std::span(checks).first(group.count));
    for (std::size_t i = 0; i < group.count; ++i) {
      to += i + 1 < group.count ? group.length : group.last_length;
      append_check(checks[i]);
    }
    done += group.bytes();
    index += static_cast<std::uint32_t>(group.count);
  }
  SPILLWAY_CHECK(to == out.data() + header.packet_size());
  return header.packet_size();
}

PacketFault verify_head(base::ByteView packet, const PacketAuth& auth, OpenedPacket& opened) {
  DataHeader& header = opened.header;
  if (header.encrypted != auth.encrypts()) {
    return PacketFault::kAuthMode;
  }
  if (packet.size() < header.head_end()) {
    return PacketFault::kCutInHead;
  }
  if (packet.size() > header.packet_size()) {
    return PacketFault::kTooLong;
  }
  const PacketName name = header.stamp.name();
  const base::ByteView head =
      packet.subspan(kDataHeaderSize + SPILLWAY_CHECK_SIZE, header.head_bytes);
  opened.auth = &auth;
  const Check check = auth.open_head(name, packet.first(kDataHeaderSize), head, nullptr);
  if (!PacketAuth::matches(check, packet.subspan(kDataHeaderSize, SPILLWAY_CHECK_SIZE))) {
    return PacketFault::kHeadCheck;
  }
  return !header.encrypted || decrypt_scale(name, auth, header) ? PacketFault::kNone
                                                                : PacketFault::kField;
}

PacketFault open_data_packet(base::ByteView packet, const PacketAuth& auth, OpenedPacket& opened,
                             std::uint64_t near) {
  const PacketFault fault = read_data_header(packet, opened.header);
  if (fault != PacketFault::kNone) {
    return fault;
  }
  DataStamp& stamp = opened.header.stamp;
  stamp.number = widen(static_cast<std::uint32_t>(stamp.number), near);
  return verify_head(packet, auth, opened);
}

TrustedPlanes copy_trusted_planes(base::ByteView packet, const OpenedPacket& opened,
                                  base::MutableByteView out) {
  const DataHeader& header = opened.header;
  const PacketAuth& auth = *opened.auth;
  const PacketName name = header.stamp.name();
  const std::size_t plane_bytes = header.plane_bytes();
  SPILLWAY_CHECK(packet.size() >= header.head_end() && out.size() >= plane_bytes);
  const base::ByteView head =
      packet.subspan(header.head_end() - header.head_bytes, header.head_bytes);
  if (header.encrypted) {
    auth.open_head(name, packet.first(kDataHeaderSize), head, out.data());
  } else {
    std::memcpy(out.data(), head.data(), head.size());
  }
  std::size_t trusted = header.head_bytes;
  base::ByteView rest = packet.subspan(header.head_end());
  for (std::uint32_t index = 0; trusted < plane_bytes;) {
    const SegmentGroup group =
        present_segments(plane_bytes - trusted, rest.size(), header.segment_bytes());
    std::array<Check, PacketAuth::kSegmentsAtOnce> checks;
    auth.open_segments(name, index,
                       {.from = rest.data(),
                        .from_stride = group.length + SPILLWAY_CHECK_SIZE,
                        .to = out.data() + trusted,
                        .to_stride = group.length,
                        .length = group.length,
                        .last_length = group.last_length},
                       std::span(checks).first(group.count));
    for (std::size_t i = 0; i < group.count; ++i) {
      const std::size_t length = i + 1 < group.count ? group.length : group.last_length;
      if (!PacketAuth::matches(checks[i], rest.subspan(length, SPILLWAY_CHECK_SIZE))) {
        return {trusted, true};
      }
      rest = rest.subspan(length + SPILLWAY_CHECK_SIZE);
      trusted += length;
    }
    if (group.count == 0) {
      break;  // the packet was trimmed here
    }
    index += static_cast<std::uint32_t>(group.count);
  }
  return {trusted, false};
}

base::ByteView trusted_bytes(base::ByteView packet, const OpenedPacket& opened,
                             base::MutableByteView decrypted) {
  const DataHeader& header = opened.header;
  SPILLWAY_CHECK(header.codec == Codec::kBytes && packet.size() >= header.head_end());
  if (header.encrypted) {
    return decrypted.first(copy_trusted_planes(packet, opened, decrypted).bytes);
  }
  // All bytes after the head are one segment, with no check inside.
  const base::ByteView planes = packet.subspan(header.head_end() - header.head_bytes);
  const std::size_t segment = header.plane_bytes() - header.head_bytes;
  if (segment == 0 || packet.size() < header.packet_size()) {
    return planes.first(header.head_bytes);
  }
  Check check;
  opened.auth->open_segments(header.stamp.name(), 0,
                             {.from = planes.data() + header.head_bytes,
                              .from_stride = 0,
                              .to = nullptr,
                              .to_stride = 0,
                              .length = segment,
                              .last_length = segment},
                             std::span(&check, 1));
  const bool matches =
      PacketAuth::matches(check, planes.subspan(header.plane_bytes(), SPILLWAY_CHECK_SIZE));
  return planes.first(matches ? header.plane_bytes() : header.head_bytes);
}

}  // namespace spillway::wire
