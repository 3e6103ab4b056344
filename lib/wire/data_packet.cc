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

// Tail segments that are processed together: all but the last have the same length.
struct SegmentGroup {
  std::size_t count = 0;
  std::size_t length = 0;
  std::size_t last_length = 0;

  std::size_t bytes() const { return (count - 1) * length + last_length; }
};

// The next group of segments, with `left` bytes left to process.
SegmentGroup next_segments(std::size_t left, std::size_t length) {
  constexpr std::size_t kMaxGroup = PacketAuth::kSegmentsAtOnce;
  const std::size_t count = (left + length - 1) / length;
  if (count > kMaxGroup) {
    return {kMaxGroup, length, length};
  }
  return {count, length, left - (count - 1) * length};
}

// Like next_segments(), but only `present` bytes arrived: counts whole segments with their checks.
SegmentGroup present_segments(std::size_t left, std::size_t present, std::size_t length) {
  const SegmentGroup group = next_segments(left, length);
  if (present >= group.bytes() + group.count * SPILLWAY_CHECK_SIZE) {
    return group;
  }
  return {std::min(present / (length + SPILLWAY_CHECK_SIZE), group.count - 1), length, length};
}

// Marks a written header as encrypted and encrypts its scale, if it has one.
void encrypt_header(const PacketName& name, const PacketAuth& auth, base::MutableByteView bytes) {
  constexpr std::size_t kScaleAt = offsetof(spillway_planes_header, scale);
  bytes[offsetof(spillway_packet_header, flags)] |= SPILLWAY_FLAG_ENCRYPTED;
  if (spillway_type_of(bytes[0]) == SPILLWAY_TYPE_PLANES) {
    const auto scale = base::load_le<std::uint32_t>(&bytes[kScaleAt]);
    base::store_le(&bytes[kScaleAt], auth.cipher_scale(name, scale));
  }
}

// False if the scale is one that no sender writes.
bool decrypt_scale(const PacketName& name, const PacketAuth& auth, DataHeader& header) {
  const std::uint32_t scale = auth.cipher_scale(name, std::bit_cast<std::uint32_t>(header.scale));
  header.scale = std::bit_cast<float>(scale);
  return spillway_is_valid_scale(scale, header.rotations) != 0;
}

void write_common(const DataHeader& header, spillway_packet_header& raw) {
  const DataStamp& stamp = header.stamp;
  SPILLWAY_CHECK(stamp.priority < 8 && stamp.importance < 8);
  raw.version_type =
      static_cast<__u8>(SPILLWAY_WIRE_VERSION << 4 | static_cast<unsigned>(header.codec));
  raw.flags = static_cast<__u8>((header.encrypted ? SPILLWAY_FLAG_ENCRYPTED : 0) |
                                (stamp.last ? SPILLWAY_FLAG_LAST : 0) |
                                (stamp.retransmit ? SPILLWAY_FLAG_RETRANSMIT : 0) |
                                (stamp.report ? SPILLWAY_FLAG_REPORT : 0) |
                                (stamp.requires_some ? SPILLWAY_FLAG_REQUIRES : 0) |
                                (header.is_code ? SPILLWAY_FLAG_CODE : 0));
  raw.job = stamp.job;
  raw.source = stamp.message.source;
  raw.destination = stamp.destination;
  raw.piece = stamp.message.piece;
  raw.packet = stamp.packet;
  raw.operation = low_counter(stamp.message.operation);
  raw.epoch = static_cast<__u8>(stamp.epoch);
  raw.number = low_counter(stamp.number);
  raw.path = stamp.path;
  raw.timestamp_us = low_counter(stamp.timestamp_us);
  raw.service = static_cast<__u8>(static_cast<unsigned>(stamp.message.phase) << 6 |
                                  stamp.priority << 3 | stamp.importance);
}

void read_common(const spillway_packet_header& raw, DataHeader& header) {
  header.encrypted = (raw.flags & SPILLWAY_FLAG_ENCRYPTED) != 0;
  header.codec = static_cast<Codec>(spillway_type_of(raw.version_type));
  header.is_code = (raw.flags & SPILLWAY_FLAG_CODE) != 0;
  DataStamp& stamp = header.stamp;
  stamp.last = (raw.flags & SPILLWAY_FLAG_LAST) != 0;
  stamp.retransmit = (raw.flags & SPILLWAY_FLAG_RETRANSMIT) != 0;
  stamp.report = (raw.flags & SPILLWAY_FLAG_REPORT) != 0;
  stamp.requires_some = (raw.flags & SPILLWAY_FLAG_REQUIRES) != 0;
  stamp.job = raw.job;
  stamp.epoch = raw.epoch;
  stamp.destination = raw.destination;
  stamp.message = {.operation = raw.operation,
                   .signature = 0,
                   .piece = raw.piece,
                   .source = raw.source,
                   .phase = static_cast<Phase>(spillway_phase_of(raw.service))};
  stamp.packet = raw.packet;
  stamp.number = raw.number;
  stamp.path = raw.path;
  stamp.timestamp_us = raw.timestamp_us;
  stamp.priority = spillway_priority_of(raw.service);
  stamp.importance = spillway_importance_of(raw.service);
}

PacketFault read_planes_header(base::ByteView packet, DataHeader& header) {
  spillway_planes_header raw;
  if (packet.size() < sizeof raw) {
    return PacketFault::kTooShort;
  }
  std::memcpy(&raw, packet.data(), sizeof raw);
  if (!spillway_is_valid_planes(&raw)) {
    return PacketFault::kField;
  }
  header.stamp.message.signature = raw.signature;
  header.stamp.is_signed = true;
  header.row_log2 = raw.row_log2;
  header.rotations = spillway_rotations_of(raw.planes);
  header.planes = spillway_planes_of(raw.planes);
  header.row = raw.row;
  header.slot = raw.slot;
  header.quanta =
      static_cast<std::uint16_t>(spillway_coordinates_per_slot(&raw) / SPILLWAY_QUANTUM);
  header.head_bytes = static_cast<std::uint16_t>(raw.head_words * 4);
  header.has_segmented_tail = raw.tail == SPILLWAY_TAIL_SEGMENTS;
  header.scale = std::bit_cast<float>(raw.scale);
  return PacketFault::kNone;
}

PacketFault read_bytes_header(base::ByteView packet, DataHeader& header) {
  spillway_bytes_header raw;
  std::memcpy(&raw.common, packet.data(), sizeof raw.common);
  const std::size_t size = header.header_size();
  if (packet.size() < size) {
    return PacketFault::kTooShort;
  }
  if (!spillway_is_valid_bytes(&raw.common, static_cast<__u32>(packet.size()))) {
    return PacketFault::kField;
  }
  header.stamp.is_signed = size == sizeof raw;
  if (header.stamp.is_signed) {
    std::memcpy(&raw, packet.data(), sizeof raw);
    header.stamp.message.signature = raw.signature;
  }
  header.head_bytes = 0;
  const std::size_t overhead = spillway_bytes_overhead(header.stamp.packet);
  header.byte_count = static_cast<std::uint16_t>(packet.size() - std::min(packet.size(), overhead));
  return PacketFault::kNone;
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
  SPILLWAY_CHECK(out.size() >= header.header_size());
  if (header.codec == Codec::kBytes) {
    SPILLWAY_CHECK(header.byte_count > 0 && header.head_bytes == 0 &&
                   header.packet_size() <= SPILLWAY_MAX_PACKET &&
                   header.stamp.path <= SPILLWAY_MAX_PATH);
    spillway_bytes_header raw{};
    write_common(header, raw.common);
    raw.signature = header.stamp.message.signature;
    std::memcpy(out.data(), &raw, header.header_size());
    return;
  }
  SPILLWAY_CHECK(header.rotations <= SPILLWAY_MAX_ROTATIONS &&
                 header.planes <= SPILLWAY_MAX_PLANES && header.quanta > 0 &&
                 header.quanta <= SPILLWAY_MAX_QUANTA && !header.is_code);
  spillway_planes_header raw{};
  write_common(header, raw.common);
  raw.signature = header.stamp.message.signature;
  raw.row_log2 = header.row_log2;
  raw.planes = static_cast<__u8>(header.rotations << 6 | header.planes);
  raw.row = header.row;
  raw.slot = header.slot;
  raw.quanta = static_cast<__u8>(header.quanta % SPILLWAY_MAX_QUANTA);
  raw.head_words = static_cast<__u8>(header.head_bytes / 4);
  raw.tail = header.tail();
  raw.scale = std::bit_cast<__u32>(header.scale);
  SPILLWAY_CHECK(spillway_is_valid_planes(&raw));
  std::memcpy(out.data(), &raw, sizeof raw);
}

PacketFault read_data_header(base::ByteView packet, DataHeader& header) {
  spillway_packet_header raw;
  if (packet.size() < sizeof raw) {
    return PacketFault::kTooShort;
  }
  if (packet.size() > SPILLWAY_MAX_PACKET) {
    return PacketFault::kTooLong;
  }
  std::memcpy(&raw, packet.data(), sizeof raw);
  if (spillway_version_of(raw.version_type) != SPILLWAY_WIRE_VERSION) {
    return PacketFault::kVersion;
  }
  if (!spillway_is_data_type(spillway_type_of(raw.version_type))) {
    return PacketFault::kType;
  }
  read_common(raw, header);
  return header.codec == Codec::kBytes ? read_bytes_header(packet, header)
                                       : read_planes_header(packet, header);
}

std::size_t write_data_packet(const DataHeader& header, base::ByteView payload,
                              const PacketAuth& auth, base::MutableByteView out) {
  SPILLWAY_CHECK(payload.size() == header.payload_bytes() && out.size() >= header.packet_size());
  const PacketName name = header.stamp.name();
  const base::MutableByteView header_bytes = out.first(header.header_size());
  write_data_header(header, header_bytes);
  if (auth.encrypts()) {
    encrypt_header(name, auth, header_bytes);
  }
  std::uint8_t* to = out.data() + header_bytes.size();
  const auto append_check = [&](const Check& check) {
    std::memcpy(to, check.bytes.data(), SPILLWAY_CHECK_SIZE);
    to += SPILLWAY_CHECK_SIZE;
  };
  append_check(auth.seal_head(name, header_bytes, payload.first(header.head_bytes),
                              to + SPILLWAY_CHECK_SIZE));
  to += header.head_bytes;
  std::size_t done = header.head_bytes;
  for (std::uint32_t index = 0; done < payload.size();) {
    std::array<Check, PacketAuth::kSegmentsAtOnce> checks;
    const SegmentGroup group = next_segments(payload.size() - done, header.segment_bytes());
    auth.seal_segments(name, index,
                       {.from = payload.data() + done,
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
  // A packet of bytes that was cut has fewer bytes than two checks.
  if (header.codec == Codec::kPlanes && packet.size() > header.packet_size()) {
    return PacketFault::kTooLong;
  }
  const PacketName name = header.stamp.name();
  const std::size_t header_size = header.header_size();
  const base::ByteView head = packet.subspan(header_size + SPILLWAY_CHECK_SIZE, header.head_bytes);
  opened.auth = &auth;
  const Check check = auth.open_head(name, packet.first(header_size), head, nullptr);
  if (!PacketAuth::matches(check, packet.subspan(header_size, SPILLWAY_CHECK_SIZE))) {
    return PacketFault::kHeadCheck;
  }
  const bool has_scale = header.codec == Codec::kPlanes;
  return !header.encrypted || !has_scale || decrypt_scale(name, auth, header) ? PacketFault::kNone
                                                                              : PacketFault::kField;
}

PacketFault open_data_packet(base::ByteView packet, const PacketAuth& auth, OpenedPacket& opened,
                             std::uint64_t near) {
  const PacketFault fault = read_data_header(packet, opened.header);
  if (fault != PacketFault::kNone) {
    return fault;
  }
  DataStamp& stamp = opened.header.stamp;
  stamp.number = widen_counter(stamp.number, near);
  return verify_head(packet, auth, opened);
}

TrustedPlanes copy_trusted_planes(base::ByteView packet, const OpenedPacket& opened,
                                  base::MutableByteView out) {
  const DataHeader& header = opened.header;
  const PacketAuth& auth = *opened.auth;
  const PacketName name = header.stamp.name();
  const std::size_t payload_bytes = header.payload_bytes();
  SPILLWAY_CHECK(packet.size() >= header.head_end() && out.size() >= payload_bytes);
  const base::ByteView head =
      packet.subspan(header.head_end() - header.head_bytes, header.head_bytes);
  if (header.encrypted && !head.empty()) {
    auth.open_head(name, packet.first(header.header_size()), head, out.data());
  } else {
    std::copy(head.begin(), head.end(), out.begin());
  }
  std::size_t trusted = header.head_bytes;
  base::ByteView rest = packet.subspan(header.head_end());
  for (std::uint32_t index = 0; trusted < payload_bytes;) {
    const SegmentGroup group =
        present_segments(payload_bytes - trusted, rest.size(), header.segment_bytes());
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
  const base::ByteView bytes = packet.subspan(header.head_end(), header.byte_count);
  if (bytes.empty()) {
    return bytes;
  }
  Check check;
  opened.auth->open_segments(header.stamp.name(), 0,
                             {.from = bytes.data(),
                              .from_stride = 0,
                              .to = nullptr,
                              .to_stride = 0,
                              .length = bytes.size(),
                              .last_length = bytes.size()},
                             std::span(&check, 1));
  return PacketAuth::matches(check, packet.last(SPILLWAY_CHECK_SIZE)) ? bytes : bytes.first(0);
}

}  // namespace spillway::wire
