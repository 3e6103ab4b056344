// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/frame.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace spillway::fabric {
namespace {

constexpr std::size_t kTcpHeader = 20;
constexpr std::size_t kUdpChecksum = 6;  // offsets in their headers
constexpr std::size_t kTcpChecksum = 16;

spillway_layout layout_of(base::ByteView frame) {
  spillway_layout layout = {};
  if (!frame.empty()) {
    spillway_find_layout(frame.data(), frame.data() + frame.size(), &layout);
  }
  return layout;
}

FrameKind kind_of(const spillway_frame& frame) {
  const bool is_sum = (frame.flags & SPILLWAY_FRAME_SUM) != 0;
  if ((frame.flags & SPILLWAY_FRAME_TRIMMABLE) != 0) {
    return is_sum ? FrameKind::kSpillwaySum : FrameKind::kSpillwayData;
  }
  if ((frame.flags & SPILLWAY_FRAME_CONTROL) != 0) {
    return is_sum ? FrameKind::kSpillwaySumControl : FrameKind::kSpillwayControl;
  }
  return FrameKind::kOther;
}

// True if the header's service field has a meaning.
bool has_service(FrameKind kind) {
  return kind == FrameKind::kSpillwayData || kind == FrameKind::kSpillwaySum;
}

// `payload` is that of a Spillway packet.
std::uint8_t priority_of(const std::uint8_t* payload) {
  return spillway_priority_of(payload[offsetof(spillway_packet_header, service)]);
}

// ------------------------------------------------------------------ flows

std::uint64_t mix(std::uint64_t hash, base::ByteView bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, &bytes[i], std::min<std::size_t>(4, bytes.size() - i));
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

std::uint32_t label_of(const spillway_layout& layout, base::ByteView frame) {
  const base::ByteView addresses =
      layout.is_ipv6 != 0 ? frame.subspan(layout.ip + 8U, 32) : frame.subspan(layout.ip + 12U, 8);
  std::uint64_t hash = mix(layout.protocol, addresses);
  const bool has_ports = layout.protocol == IPPROTO_UDP || layout.protocol == IPPROTO_TCP;
  if (has_ports && layout.transport != 0 && frame.size() >= layout.transport + 4U) {
    hash = mix(hash, frame.subspan(layout.transport, 4));
  }
  return static_cast<std::uint32_t>(hash);
}

// ------------------------------------------------------------------ checksums

void write_transport_checksum(const spillway_layout& layout, base::MutableByteView frame,
                              std::size_t field) {
  const std::uint8_t* stop = frame.data() + layout.end;
  std::uint8_t* at = &frame[layout.transport + field];
  spillway_store_word(at, 0);
  const std::uint32_t checksum =
      spillway_transport_checksum(frame.data(), stop, &layout, layout.end - layout.transport);
  const bool means_none = checksum == 0 && layout.protocol == IPPROTO_UDP;
  spillway_store_word(at, means_none ? 0xFFFF : checksum);
}

}  // namespace

FrameKind inspect_payload(base::ByteView payload, FrameInfo& info) {
  if (payload.size() < sizeof(spillway_packet_header)) {
    return FrameKind::kOther;
  }
  spillway_frame frame = {};
  spillway_read_payload(payload.data(), payload.data() + payload.size(),
                        static_cast<std::uint32_t>(payload.size()), &frame);
  if (has_service(kind_of(frame))) {
    info.importance = frame.importance;
    info.priority = priority_of(payload.data());
  }
  return kind_of(frame);
}

FrameInfo inspect_frame(base::ByteView bytes) {
  if (bytes.empty()) {
    return {};
  }
  spillway_layout layout;
  spillway_frame frame;
  spillway_read_frame(bytes.data(), bytes.data() + bytes.size(),
                      static_cast<std::uint32_t>(bytes.size()), &layout, &frame);
  FrameInfo info;
  if (layout.ip == 0) {
    return info;
  }
  info.kind = kind_of(frame);
  info.dscp = frame.dscp;
  info.ecn = frame.ecn;
  info.label = label_of(layout, bytes);
  if (has_service(info.kind)) {
    info.importance = frame.importance;
    info.priority = priority_of(&bytes[layout.transport + SPILLWAY_UDP_HEADER]);
  }
  return info;
}

void fix_lengths(base::MutableByteView frame, std::uint8_t lengths) {
  const spillway_layout layout = layout_of(frame);
  spillway_fix_lengths(frame.data(), frame.data() + frame.size(),
                       static_cast<std::uint32_t>(frame.size()), &layout, lengths);
}

void set_traffic_class(base::MutableByteView frame, std::uint8_t dscp, std::uint8_t ecn) {
  const spillway_layout layout = layout_of(frame);
  spillway_set_traffic_class(frame.data(), frame.data() + frame.size(), &layout,
                             static_cast<std::uint8_t>(dscp << 2 | (ecn & 0x03)));
}

void complete_checksum(base::MutableByteView frame) {
  const spillway_layout layout = layout_of(frame);
  if (layout.transport == 0 || layout.end > frame.size() || layout.end < layout.transport) {
    return;
  }
  const std::size_t length = layout.end - layout.transport;
  if (layout.protocol == IPPROTO_UDP && length >= SPILLWAY_UDP_HEADER) {
    write_transport_checksum(layout, frame, kUdpChecksum);
  } else if (layout.protocol == IPPROTO_TCP && length >= kTcpHeader) {
    write_transport_checksum(layout, frame, kTcpChecksum);
  }
}

}  // namespace spillway::fabric
