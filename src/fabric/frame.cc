// SPDX-License-Identifier: Apache-2.0
#include "fabric/frame.h"

#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "wire/data_header.h"
#include "wire/packet.h"

namespace spillway::fabric {
namespace {

constexpr std::uint16_t kTypeIpv4 = 0x0800;
constexpr std::uint16_t kTypeIpv6 = 0x86DD;
constexpr std::uint16_t kTypeVlan = 0x8100;
constexpr std::uint16_t kTypeServiceVlan = 0x88A8;
constexpr std::size_t kEtherType = 12;  // its offset
constexpr std::size_t kIpv4Header = 20;
constexpr std::size_t kIpv6Header = 40;
constexpr std::size_t kUdpHeader = 8;
constexpr std::size_t kTcpHeader = 20;
constexpr std::size_t kUdpChecksum = 6;  // offsets in their headers
constexpr std::size_t kTcpChecksum = 16;

std::uint16_t load_be(const std::uint8_t* from) {
  return static_cast<std::uint16_t>((from[0] << 8) | from[1]);
}

void store_be(std::uint8_t* to, std::size_t value) {
  to[0] = static_cast<std::uint8_t>(value >> 8);
  to[1] = static_cast<std::uint8_t>(value);
}

// Where the parts of an IP packet are. The headers named are within the frame; `end` is what the IP
// header says and may lie beyond it.
struct Layout {
  std::size_t ip = 0;
  std::size_t transport = 0;  // 0: a fragment
  std::size_t end = 0;
  std::uint8_t protocol = 0;
  bool is_ipv6 = false;
};

std::optional<Layout> ipv4_layout(base::ByteView frame, std::size_t ip) {
  if (frame.size() < ip + kIpv4Header || frame[ip] >> 4 != 4) {
    return std::nullopt;
  }
  const std::size_t header = (frame[ip] & 0x0FU) * 4U;
  const std::size_t total = load_be(&frame[ip + 2]);
  if (header < kIpv4Header || frame.size() < ip + header || total < header) {
    return std::nullopt;
  }
  const bool is_fragment = (load_be(&frame[ip + 6]) & 0x3FFF) != 0;  // offset, or more to come
  return Layout{.ip = ip,
                .transport = is_fragment ? 0 : ip + header,
                .end = ip + total,
                .protocol = frame[ip + 9]};
}

std::optional<Layout> ipv6_layout(base::ByteView frame, std::size_t ip) {
  if (frame.size() < ip + kIpv6Header || frame[ip] >> 4 != 6) {
    return std::nullopt;
  }
  return Layout{.ip = ip,
                .transport = ip + kIpv6Header,
                .end = ip + kIpv6Header + load_be(&frame[ip + 4]),
                .protocol = frame[ip + 6],
                .is_ipv6 = true};
}

std::optional<Layout> layout_of(base::ByteView frame) {
  if (frame.size() < kEthernetHeader) {
    return std::nullopt;
  }
  std::size_t ip = kEthernetHeader;
  std::uint16_t type = load_be(&frame[kEtherType]);
  if (type == kTypeVlan || type == kTypeServiceVlan) {
    ip += kVlanTag;
    if (frame.size() < ip) {
      return std::nullopt;
    }
    type = load_be(&frame[ip - 2]);
  }
  if (type == kTypeIpv4) {
    return ipv4_layout(frame, ip);
  }
  return type == kTypeIpv6 ? ipv6_layout(frame, ip) : std::nullopt;
}

// A UDP header that is all there.
bool has_udp(const Layout& layout, base::ByteView frame) {
  return layout.protocol == IPPROTO_UDP && layout.transport != 0 &&
         frame.size() >= layout.transport + kUdpHeader;
}

// ------------------------------------------------------------------ the traffic class

std::uint8_t traffic_class(const Layout& layout, base::ByteView frame) {
  if (!layout.is_ipv6) {
    return frame[layout.ip + 1];
  }
  return static_cast<std::uint8_t>((frame[layout.ip] << 4) | (frame[layout.ip + 1] >> 4));
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

std::uint32_t label_of(const Layout& layout, base::ByteView frame) {
  const base::ByteView addresses =
      layout.is_ipv6 ? frame.subspan(layout.ip + 8, 32) : frame.subspan(layout.ip + 12, 8);
  std::uint64_t hash = mix(layout.protocol, addresses);
  const bool has_ports = layout.protocol == IPPROTO_UDP || layout.protocol == IPPROTO_TCP;
  if (has_ports && layout.transport != 0 && frame.size() >= layout.transport + 4) {
    hash = mix(hash, frame.subspan(layout.transport, 4));
  }
  return static_cast<std::uint32_t>(hash);
}

// ------------------------------------------------------------------ checksums

// One's complement sums, in the bytes' own order; odd lengths are padded with a zero.
std::uint64_t sum_of(base::ByteView bytes) {
  std::uint64_t sum = 0;
  std::size_t i = 0;
  for (; i + 4 <= bytes.size(); i += 4) {
    sum += base::load_le<std::uint32_t>(&bytes[i]);
  }
  std::uint32_t rest = 0;
  std::memcpy(&rest, bytes.data() + i, bytes.size() - i);
  return sum + rest;
}

std::uint16_t fold(std::uint64_t sum) {
  while (sum >> 16 != 0) {
    sum = (sum & 0xFFFF) + (sum >> 16);
  }
  return static_cast<std::uint16_t>(sum);
}

// Of TCP or UDP with `length` bytes, checksum field zero.
std::uint16_t transport_checksum(const Layout& layout, base::ByteView frame, std::size_t length) {
  const base::ByteView addresses =
      layout.is_ipv6 ? frame.subspan(layout.ip + 8, 32) : frame.subspan(layout.ip + 12, 8);
  std::uint64_t sum = sum_of(addresses) + sum_of(frame.subspan(layout.transport, length));
  sum += std::uint64_t{layout.protocol} << 8;  // network order
  sum += __builtin_bswap16(static_cast<std::uint16_t>(length)) + __builtin_bswap16(length >> 16);
  return static_cast<std::uint16_t>(~fold(sum));
}

void write_transport_checksum(const Layout& layout, base::MutableByteView frame, std::size_t length,
                              std::size_t field) {
  std::uint8_t* at = &frame[layout.transport + field];
  base::store_le<std::uint16_t>(at, 0);
  std::uint16_t checksum = transport_checksum(layout, frame, length);
  if (checksum == 0 && layout.protocol == IPPROTO_UDP) {
    checksum = 0xFFFF;  // 0 says there is none
  }
  base::store_le(at, checksum);
}

// RFC 1624: a 16-bit word at an even offset of the IPv4 header changes.
void replace_ipv4_word(base::MutableByteView frame, std::size_t ip, std::size_t offset,
                       std::uint16_t word) {
  std::uint8_t* checksum = &frame[ip + 10];
  const auto before = base::load_le<std::uint16_t>(&frame[ip + offset]);
  const auto old = base::load_le<std::uint16_t>(checksum);
  base::store_le(&frame[ip + offset], word);
  const std::uint32_t sum =
      static_cast<std::uint16_t>(~old) + static_cast<std::uint16_t>(~before) + std::uint32_t{word};
  base::store_le(checksum, static_cast<std::uint16_t>(~fold(sum)));
}

FrameKind inspect_control(base::ByteView payload) {
  const auto type = spillway_type_of(payload[0]);
  const std::uint8_t flags = payload[offsetof(spillway_packet_header, flags)];
  const std::uint8_t service = payload[offsetof(spillway_packet_header, service)];
  const bool fits = payload.size() >= sizeof(spillway_control_header) &&
                    type >= SPILLWAY_TYPE_PROBE && type <= SPILLWAY_TYPE_WAIT &&
                    (flags & ~SPILLWAY_FLAGS_KNOWN) == 0 && spillway_priority_of(service) == 0 &&
                    spillway_importance_of(service) == 0;
  return fits ? FrameKind::kSpillwayControl : FrameKind::kOther;
}

}  // namespace

FrameKind inspect_payload(base::ByteView payload, FrameInfo& info) {
  if (payload.size() < sizeof(spillway_packet_header) ||
      spillway_version_of(payload[0]) != SPILLWAY_WIRE_VERSION) {
    return FrameKind::kOther;
  }
  if (spillway_type_of(payload[0]) != SPILLWAY_TYPE_DATA) {
    return inspect_control(payload);
  }
  wire::DataHeader header;
  if (wire::read_data_header(payload, header) != wire::PacketFault::kNone) {
    return FrameKind::kOther;
  }
  info.importance = header.importance;
  info.priority = header.priority;
  return FrameKind::kSpillwayData;
}

FrameInfo inspect_frame(base::ByteView frame) {
  FrameInfo info;
  const std::optional<Layout> layout = layout_of(frame);
  if (!layout) {
    return info;
  }
  const std::uint8_t tos = traffic_class(*layout, frame);
  info.dscp = tos >> 2;
  info.ecn = tos & 0x03;
  info.label = label_of(*layout, frame);
  if (has_udp(*layout, frame) && layout->end <= frame.size()) {
    const std::size_t length = load_be(&frame[layout->transport + 4]);
    if (length >= kUdpHeader && layout->transport + length == layout->end) {
      info.kind =
          inspect_payload(frame.subspan(layout->transport + kUdpHeader, length - kUdpHeader), info);
    }
  }
  return info;
}

void fix_lengths(base::MutableByteView frame) {
  const std::optional<Layout> layout = layout_of(frame);
  if (!layout || layout->end <= frame.size()) {
    return;
  }
  if (layout->is_ipv6) {
    store_be(&frame[layout->ip + 4], frame.size() - layout->ip - kIpv6Header);
  } else {
    const auto total = static_cast<std::uint16_t>(frame.size() - layout->ip);
    replace_ipv4_word(frame, layout->ip, 2, __builtin_bswap16(total));
  }
  if (!has_udp(*layout, frame)) {
    return;
  }
  const std::size_t length = frame.size() - layout->transport;
  store_be(&frame[layout->transport + 4], length);
  if (layout->is_ipv6) {
    write_transport_checksum(*layout, frame, length, kUdpChecksum);
  } else {
    store_be(&frame[layout->transport + kUdpChecksum], 0);
  }
}

void set_traffic_class(base::MutableByteView frame, std::uint8_t dscp, std::uint8_t ecn) {
  const std::optional<Layout> layout = layout_of(frame);
  const auto tos = static_cast<std::uint8_t>((dscp << 2) | (ecn & 0x03));
  if (!layout || traffic_class(*layout, frame) == tos) {
    return;
  }
  std::uint8_t* ip = &frame[layout->ip];
  if (layout->is_ipv6) {
    ip[0] = static_cast<std::uint8_t>((ip[0] & 0xF0) | (tos >> 4));
    ip[1] = static_cast<std::uint8_t>((ip[1] & 0x0F) | (tos << 4));
    return;
  }
  replace_ipv4_word(frame, layout->ip, 0, static_cast<std::uint16_t>(ip[0] | (tos << 8)));
}

void complete_checksum(base::MutableByteView frame) {
  const std::optional<Layout> layout = layout_of(frame);
  if (!layout || layout->transport == 0 || layout->end > frame.size() ||
      layout->end < layout->transport) {
    return;
  }
  const std::size_t length = layout->end - layout->transport;
  if (layout->protocol == IPPROTO_UDP && length >= kUdpHeader) {
    write_transport_checksum(*layout, frame, length, kUdpChecksum);
  } else if (layout->protocol == IPPROTO_TCP && length >= kTcpHeader) {
    write_transport_checksum(*layout, frame, length, kTcpChecksum);
  }
}

}  // namespace spillway::fabric
