// SPDX-License-Identifier: Apache-2.0
//
// Frames for tests, and checksums computed the plain way: 16 bits at a time, in network order.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "wire/data_packet.h"

namespace spillway::fabric {

using Bytes = std::vector<std::uint8_t>;

inline void append_be(Bytes& out, std::size_t value) {
  out.push_back(static_cast<std::uint8_t>(value >> 8));
  out.push_back(static_cast<std::uint8_t>(value));
}

inline std::uint16_t be_at(base::ByteView bytes, std::size_t offset) {
  return static_cast<std::uint16_t>((bytes[offset] << 8) | bytes[offset + 1]);
}

// 0xFFFF if the bytes include their correct checksum.
inline std::uint16_t plain_sum(base::ByteView bytes, std::uint32_t sum = 0) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    sum += i % 2 == 0 ? std::uint32_t{bytes[i]} << 8 : bytes[i];
  }
  while (sum >> 16 != 0) {
    sum = (sum & 0xFFFF) + (sum >> 16);
  }
  return static_cast<std::uint16_t>(sum);
}

struct FrameOptions {
  bool ipv6 = false;
  bool vlan = false;
  bool service_vlan = false;  // 802.1ad, outside the other tag
  bool options = false;       // IPv4: four bytes of options
  std::uint8_t tos = 0;
  std::uint8_t protocol = 17;
  std::uint16_t fragment = 0;
  std::uint16_t source_port = 4000;
  Bytes payload;
};

struct TestFrame {
  Bytes bytes;
  std::size_t ip = 0;
  std::size_t transport = 0;
  bool ipv6 = false;

  // Sum over the transport header with its checksum, as a receiver computes it.
  std::uint16_t transport_sum() const {
    const base::ByteView all(bytes);
    const base::ByteView addresses = ipv6 ? all.subspan(ip + 8, 32) : all.subspan(ip + 12, 8);
    const std::size_t protocol = ipv6 ? all[ip + 6] : all[ip + 9];
    const std::size_t length = bytes.size() - transport;
    return plain_sum(all.subspan(transport),
                     plain_sum(addresses) + static_cast<std::uint32_t>(protocol + length));
  }
  std::uint16_t ip_sum() const {
    return plain_sum(base::ByteView(bytes).subspan(ip, transport - ip));
  }
};

inline void append_ipv4(const FrameOptions& options, std::size_t length, Bytes& out) {
  const std::size_t start = out.size();
  const std::size_t header = options.options ? 24 : 20;
  out.push_back(static_cast<std::uint8_t>(0x40 | header / 4));
  out.push_back(options.tos);
  append_be(out, header + length);
  append_be(out, 0x1234);
  append_be(out, options.fragment);
  out.insert(out.end(), {64, options.protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2});
  out.resize(start + header, 1);
  const std::uint16_t sum = plain_sum(base::ByteView(out).subspan(start, header));
  out[start + 10] = static_cast<std::uint8_t>(~sum >> 8);
  out[start + 11] = static_cast<std::uint8_t>(~sum);
}

inline void append_ipv6(const FrameOptions& options, std::size_t length, Bytes& out) {
  out.push_back(static_cast<std::uint8_t>(0x60 | options.tos >> 4));
  out.push_back(static_cast<std::uint8_t>(options.tos << 4));
  append_be(out, 0x5678);
  append_be(out, length);
  out.insert(out.end(), {options.protocol, 64});
  for (std::uint8_t i = 0; i < 32; ++i) {
    out.push_back(static_cast<std::uint8_t>(0xF0 + i));
  }
}

// A UDP or TCP frame (20 bytes of header), with a checksum of zero.
inline TestFrame make_frame(const FrameOptions& options) {
  TestFrame frame;
  Bytes& out = frame.bytes;
  out = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1};
  if (options.service_vlan) {
    append_be(out, 0x88A8);
    append_be(out, 99);
  }
  if (options.vlan) {
    append_be(out, 0x8100);
    append_be(out, 42);
  }
  append_be(out, options.ipv6 ? 0x86DD : 0x0800);
  const std::size_t length = (options.protocol == 6 ? 20 : 8) + options.payload.size();
  frame.ip = out.size();
  frame.ipv6 = options.ipv6;
  (options.ipv6 ? append_ipv6 : append_ipv4)(options, length, out);
  frame.transport = out.size();
  append_be(out, options.source_port);
  append_be(out, 5000);
  if (options.protocol == 6) {
    out.resize(out.size() + 16, 0);
  } else {
    append_be(out, length);
    append_be(out, 0);
  }
  out.insert(out.end(), options.payload.begin(), options.payload.end());
  return frame;
}

// A data packet: a valid header and some bytes after it.
inline Bytes data_payload(std::size_t size, std::uint16_t source = 0, std::uint8_t importance = 5) {
  wire::DataHeader header;
  header.stamp.message.source = source;
  header.stamp.priority = 3;
  header.stamp.importance = importance;
  header.row_log2 = 12;
  header.rotations = 1;
  header.planes = 16;
  header.quanta = 22;
  header.head_bytes = 88;
  header.scale = 1.0F;
  Bytes payload(size, 0xA5);
  wire::write_data_header(header, payload);
  return payload;
}

inline Bytes control_payload() {
  Bytes payload(60, 0);
  payload[0] = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_CREDIT;
  return payload;
}

}  // namespace spillway::fabric
