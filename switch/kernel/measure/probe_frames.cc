// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/measure/probe_frames.h"

#include <algorithm>
#include <cstring>

#include "switch/dataplane/frame.h"
#include "switch/fabric/frame.h"
#include "wire/packet.h"

namespace spillway::kernel {
namespace {

void append_be16(Frame& frame, std::size_t value) {
  frame.push_back(static_cast<std::uint8_t>(value >> 8));
  frame.push_back(static_cast<std::uint8_t>(value));
}

void append_ipv4(const FrameShape& shape, std::size_t udp_bytes, Frame& frame) {
  const std::size_t header = 20 + 4 * shape.option_words;
  const std::size_t start = frame.size();
  frame.push_back(static_cast<std::uint8_t>(0x40 | header / 4));
  frame.push_back(shape.traffic_class);
  append_be16(frame, header + udp_bytes);
  frame.insert(frame.end(), {0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2});
  frame.resize(start + header, 1);  // options: all no-operation
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < header; i += 2) {
    sum += spillway_load_word(&frame[start + i]);
  }
  spillway_store_word(&frame[start + 10], ~spillway_fold(sum) & 0xFFFF);
}

void append_ipv6(const FrameShape& shape, std::size_t udp_bytes, Frame& frame) {
  frame.push_back(static_cast<std::uint8_t>(0x60 | shape.traffic_class >> 4));
  frame.push_back(static_cast<std::uint8_t>(shape.traffic_class << 4));
  frame.insert(frame.end(), {0x12, 0x34});
  append_be16(frame, udp_bytes);
  frame.insert(frame.end(), {17, 64});
  for (int end = 0; end < 2; ++end) {
    frame.insert(frame.end(), {0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    frame.push_back(static_cast<std::uint8_t>(end + 1));
  }
}

}  // namespace

Frame frame_of(const FrameShape& shape, base::ByteView payload) {
  Frame frame(std::begin(kProbeReceiver), std::end(kProbeReceiver));
  frame.insert(frame.end(), {0x02, 0x53, 0x57, 0, 0, 2});
  for (const std::uint16_t tag : shape.tags) {
    append_be16(frame, tag);
    append_be16(frame, kProbeVlan);
  }
  const std::size_t udp_bytes = SPILLWAY_UDP_HEADER + payload.size();
  append_be16(frame, shape.is_ipv6 ? SPILLWAY_ETHERTYPE_IPV6 : SPILLWAY_ETHERTYPE_IPV4);
  shape.is_ipv6 ? append_ipv6(shape, udp_bytes, frame) : append_ipv4(shape, udp_bytes, frame);
  append_be16(frame, 7077);
  append_be16(frame, 7077);
  append_be16(frame, udp_bytes);
  append_be16(frame, 0);
  frame.insert(frame.end(), payload.begin(), payload.end());
  fabric::complete_checksum(frame);
  return frame;
}

std::vector<std::uint8_t> data_payload(std::size_t bytes, std::uint8_t importance) {
  spillway_planes_header header = {};
  header.common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_PLANES;
  header.common.service = importance;
  header.row_log2 = 15;
  header.planes = 1 << 6 | 16;
  header.quanta = 22;
  header.head_words = 20;
  header.scale = 0x3F800000;
  std::vector<std::uint8_t> payload(std::max(bytes, sizeof(header)));
  std::memcpy(payload.data(), &header, sizeof(header));
  return payload;
}

Frame data_frame(const FrameShape& shape, std::size_t frame_bytes, std::uint8_t importance) {
  const std::size_t headers = frame_of(shape, {}).size();
  return frame_of(shape, data_payload(std::max(frame_bytes, headers) - headers, importance));
}

}  // namespace spillway::kernel
