// SPDX-License-Identifier: Apache-2.0
#include "wire/data_packet.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/check.h"

namespace spillway::wire {
namespace {

constexpr std::size_t kHeaderSize = sizeof(spillway_data_header);

// Tail segments that are dealt with together: all of SPILLWAY_TAIL_SEGMENT bytes but the last.
struct SegmentGroup {
  std::size_t count = 0;
  std::size_t last_length = 0;

  std::size_t bytes() const { return (count - 1) * SPILLWAY_TAIL_SEGMENT + last_length; }
};

// The next ones of `plane_bytes` that are left.
SegmentGroup next_segments(std::size_t plane_bytes) {
  constexpr std::size_t kMost = PacketAuth::kSegmentsAtOnce;
  const std::size_t left = (plane_bytes + SPILLWAY_TAIL_SEGMENT - 1) / SPILLWAY_TAIL_SEGMENT;
  if (left > kMost) {
    return {kMost, SPILLWAY_TAIL_SEGMENT};
  }
  return {left, plane_bytes - (left - 1) * SPILLWAY_TAIL_SEGMENT};
}

// The same, of which `present` bytes arrived: whole segments with their checks only.
SegmentGroup present_segments(std::size_t plane_bytes, std::size_t present,
                              std::size_t check_size) {
  const SegmentGroup group = next_segments(plane_bytes);
  if (present >= group.bytes() + group.count * check_size) {
    return group;
  }
  return {std::min(present / (SPILLWAY_TAIL_SEGMENT + check_size), group.count - 1),
          SPILLWAY_TAIL_SEGMENT};
}

}  // namespace

std::size_t write_data_packet(const DataHeader& header, base::ByteView planes,
                              const PacketAuth& auth, base::MutableByteView out) {
  SPILLWAY_CHECK(header.keyed == auth.is_keyed() && planes.size() == header.plane_bytes());
  SPILLWAY_CHECK(out.size() >= header.packet_size());
  const base::MutableByteView header_bytes = out.first(kHeaderSize);
  write_data_header(header, header_bytes);
  const std::size_t check_size = auth.check_size();
  std::uint8_t* to = out.data() + kHeaderSize;
  const auto append_check = [&](const Check& check) {
    std::memcpy(to, check.bytes.data(), check_size);
    to += check_size;
  };
  const Check head = auth.copy_head(header_bytes, planes.first(header.head_bytes), to + check_size);
  append_check(head);
  to += header.head_bytes;
  std::size_t done = header.head_bytes;
  for (std::uint32_t index = 0; done < planes.size();) {
    std::array<Check, PacketAuth::kSegmentsAtOnce> checks;
    const SegmentGroup group = next_segments(planes.size() - done);
    auth.copy_segments(head, index,
                       {.from = planes.data() + done,
                        .from_stride = SPILLWAY_TAIL_SEGMENT,
                        .to = to,
                        .to_stride = SPILLWAY_TAIL_SEGMENT + check_size,
                        .length = SPILLWAY_TAIL_SEGMENT,
                        .last_length = group.last_length},
                       std::span(checks).first(group.count));
    for (std::size_t i = 0; i < group.count; ++i) {
      to += i + 1 < group.count ? SPILLWAY_TAIL_SEGMENT : group.last_length;
      append_check(checks[i]);
    }
    done += group.bytes();
    index += static_cast<std::uint32_t>(group.count);
  }
  SPILLWAY_CHECK(to == out.data() + header.packet_size());
  return header.packet_size();
}

PacketFault open_data_packet(base::ByteView packet, const PacketAuth& auth, OpenedPacket& opened) {
  const PacketFault fault = read_data_header(packet, opened.header);
  if (fault != PacketFault::kNone) {
    return fault;
  }
  const DataHeader& header = opened.header;
  if (header.keyed != auth.is_keyed()) {
    return PacketFault::kAuthMode;
  }
  if (packet.size() < header.head_end()) {
    return PacketFault::kCutInHead;
  }
  if (packet.size() > header.packet_size()) {
    return PacketFault::kTooLong;
  }
  const std::size_t head_start = kHeaderSize + header.check_size();
  opened.head_check =
      auth.head_check(packet.first(kHeaderSize), packet.subspan(head_start, header.head_bytes));
  return auth.matches(opened.head_check, packet.subspan(kHeaderSize, header.check_size()))
             ? PacketFault::kNone
             : PacketFault::kHeadCheck;
}

TrustedPlanes copy_trusted_planes(base::ByteView packet, const OpenedPacket& opened,
                                  const PacketAuth& auth, base::MutableByteView out) {
  const DataHeader& header = opened.header;
  const std::size_t plane_bytes = header.plane_bytes();
  const std::size_t check_size = header.check_size();
  SPILLWAY_CHECK(packet.size() >= header.head_end() && out.size() >= plane_bytes);
  std::memcpy(out.data(), packet.data() + header.head_end() - header.head_bytes, header.head_bytes);
  std::size_t trusted = header.head_bytes;
  base::ByteView rest = packet.subspan(header.head_end());
  for (std::uint32_t index = 0; trusted < plane_bytes;) {
    const SegmentGroup group = present_segments(plane_bytes - trusted, rest.size(), check_size);
    std::array<Check, PacketAuth::kSegmentsAtOnce> checks;
    auth.copy_segments(opened.head_check, index,
                       {.from = rest.data(),
                        .from_stride = SPILLWAY_TAIL_SEGMENT + check_size,
                        .to = out.data() + trusted,
                        .to_stride = SPILLWAY_TAIL_SEGMENT,
                        .length = SPILLWAY_TAIL_SEGMENT,
                        .last_length = group.last_length},
                       std::span(checks).first(group.count));
    for (std::size_t i = 0; i < group.count; ++i) {
      const std::size_t length = i + 1 < group.count ? SPILLWAY_TAIL_SEGMENT : group.last_length;
      if (!auth.matches(checks[i], rest.subspan(length, check_size))) {
        return {trusted, true};
      }
      rest = rest.subspan(length + check_size);
      trusted += length;
    }
    if (group.count == 0) {
      break;  // cut here
    }
    index += static_cast<std::uint32_t>(group.count);
  }
  return {trusted, false};
}

}  // namespace spillway::wire
