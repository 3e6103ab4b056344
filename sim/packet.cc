// SPDX-License-Identifier: Apache-2.0
#include "sim/packet.h"

#include <algorithm>

#include "wire/data_packet.h"

namespace spillway::sim {

// ------------------------------------------------------------------ the pool

void PacketPool::grow() {
  const auto first = static_cast<PacketIndex>(chunks_.size() * kChunk);
  SPILLWAY_CHECK(first < kNone - kChunk);
  chunks_.push_back(std::make_unique<Packet[]>(kChunk));
  // Chained so that the lowest index comes out first: packets in use are neighbours in memory.
  for (PacketIndex i = kChunk; i-- > 0;) {
    chunks_.back()[i].next = free_;
    free_ = first + i;
  }
}

PacketIndex PacketPool::allocate() {
  if (free_ == kNone) {
    grow();
  }
  const PacketIndex index = free_;
  Packet& packet = (*this)[index];
  free_ = packet.next;
  packet = Packet();
  ++in_use_;
  return index;
}

PacketIndex PacketPool::duplicate(PacketIndex index) {
  const PacketIndex copy = allocate();
  const Packet& original = (*this)[index];
  Packet& made = (*this)[copy];
  made = original;
  made.next = kNone;
  made.payload = kNone;
  if (original.payload != kNone) {
    const base::MutableByteView room = attach_payload(made, buffers_[original.payload].size());
    std::ranges::copy(buffers_[original.payload], room.begin());
  }
  return copy;
}

void PacketPool::release(PacketIndex index) {
  SPILLWAY_CHECK(in_use_ > 0);
  Packet& packet = (*this)[index];
  if (packet.payload != kNone) {
    free_buffers_.push_back(packet.payload);
  }
  packet.next = free_;
  free_ = index;
  --in_use_;
}

base::MutableByteView PacketPool::attach_payload(Packet& packet, std::size_t size) {
  SPILLWAY_CHECK(packet.payload == kNone);
  if (free_buffers_.empty()) {
    free_buffers_.push_back(static_cast<std::uint32_t>(buffers_.size()));
    buffers_.emplace_back();
  }
  packet.payload = free_buffers_.back();
  free_buffers_.pop_back();
  buffers_[packet.payload].resize(size);
  return buffers_[packet.payload];
}

base::MutableByteView PacketPool::payload(const Packet& packet) {
  return packet.payload == kNone ? base::MutableByteView() : buffers_[packet.payload];
}

void PacketPool::resize_payload(Packet& packet, std::uint32_t size) {
  SPILLWAY_CHECK(packet.payload != kNone);
  buffers_[packet.payload].resize(size);
  packet.bytes = packet.absent_bytes + size;
}

void PacketPool::trim(Packet& packet, std::uint32_t bytes) {
  SPILLWAY_CHECK(bytes >= packet.absent_bytes && bytes <= packet.bytes);
  packet.bytes = bytes;
  if (packet.payload != kNone) {
    std::vector<std::uint8_t>& buffer = buffers_[packet.payload];
    buffer.resize(std::min<std::size_t>(buffer.size(), bytes - packet.absent_bytes));
  }
}

// ------------------------------------------------------------------ datagrams of the transport

namespace {

void stamp_sum(base::ByteView datagram, bool is_control, Packet& packet) {
  const std::uint8_t service = datagram[offsetof(spillway_packet_header, service)];
  packet.kind = is_control ? PacketKind::kSpillwaySumControl : PacketKind::kSpillwaySum;
  packet.priority = spillway_priority_of(service);
  packet.importance = spillway_importance_of(service);
}

void stamp_data(base::ByteView datagram, Packet& packet) {
  wire::DataHeader header;
  wire::read_data_header(datagram, header);
  packet.kind = PacketKind::kSpillwayData;
  packet.priority = header.stamp.priority;
  packet.importance = header.stamp.importance;
  packet.data = header.stamp;
}

}  // namespace

void fill_packet(const transport::Route& route, base::ByteView datagram, PacketPool& pool,
                 Packet& packet) {
  packet.dscp = route.dscp;
  packet.ecn = route.ecn;
  packet.kind = PacketKind::kSpillwayControl;
  packet.priority = SPILLWAY_PRIORITIES - 1;
  packet.importance = SPILLWAY_IMPORTANCE_REQUIRED;
  if (spillway_type_of(datagram[0]) == SPILLWAY_TYPE_SUM) {
    stamp_sum(datagram, route.is_control, packet);
  } else if (!route.is_control) {
    stamp_data(datagram, packet);
  }
  std::ranges::copy(datagram, pool.attach_payload(packet, datagram.size()).begin());
  packet.bytes = static_cast<std::uint32_t>(datagram.size()) + kFrameHeaderBytes;
}

}  // namespace spillway::sim
