// SPDX-License-Identifier: Apache-2.0
#include "wire/data_packet.h"

#include <algorithm>

#include "base/check.h"

namespace spillway::wire {
namespace {

constexpr std::size_t kHeaderSize = sizeof(spillway_data_header);

}  // namespace

std::size_t write_data_packet(const DataHeader& header, base::ByteView planes,
                              const PacketAuth& auth, base::MutableByteView out) {
  SPILLWAY_CHECK(header.keyed == auth.is_keyed() && planes.size() == header.plane_bytes());
  SPILLWAY_CHECK(out.size() >= header.packet_size());
  base::ByteWriter writer(out);
  const base::MutableByteView header_bytes = writer.reserve(kHeaderSize);
  write_data_header(header, header_bytes);
  const base::ByteView head = planes.first(header.head_bytes);
  const Check head_check = auth.head_check(header_bytes, head);
  const auto append_check = [&](const Check& check) {
    writer.append(base::ByteView(check.bytes).first(auth.check_size()));
  };
  append_check(head_check);
  writer.append(head);
  std::uint32_t index = 0;
  for (std::size_t at = head.size(); at < planes.size(); at += SPILLWAY_TAIL_SEGMENT) {
    const base::ByteView segment =
        planes.subspan(at, std::min<std::size_t>(SPILLWAY_TAIL_SEGMENT, planes.size() - at));
    writer.append(segment);
    append_check(auth.segment_check(head_check, index++, segment));
  }
  SPILLWAY_CHECK(writer.ok() && writer.position() == header.packet_size());
  return writer.position();
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
  SPILLWAY_CHECK(packet.size() >= header.head_end() && out.size() >= plane_bytes);
  std::memcpy(out.data(), packet.data() + header.head_end() - header.head_bytes, header.head_bytes);
  std::size_t trusted = header.head_bytes;
  base::ByteReader reader(packet.subspan(header.head_end()));
  for (std::uint32_t index = 0; trusted < plane_bytes; ++index) {
    const base::ByteView segment =
        reader.take(std::min<std::size_t>(SPILLWAY_TAIL_SEGMENT, plane_bytes - trusted));
    const base::ByteView received = reader.take(header.check_size());
    if (!reader.ok()) {
      break;
    }
    if (!auth.matches(auth.segment_check(opened.head_check, index, segment), received)) {
      return {trusted, true};
    }
    base::copy_bytes(segment.data(), segment.size(), out.data() + trusted);
    trusted += segment.size();
  }
  return {trusted, false};
}

}  // namespace spillway::wire
