// SPDX-License-Identifier: Apache-2.0
//
// A packet in the simulated network. It always has a size, addresses and the fields that switches
// read. A Spillway data packet may carry only its stamp, for large simulations; all other Spillway
// packets carry real bytes.
//
// Packets live in a pool and are named by index, so that no packet is allocated once the pool has
// grown. A reference to a packet is valid until the packet is released. A view of its payload is
// valid until the payload is trimmed or the packet released.
//
// Packets are the simulator's hottest data. They fit two cache lines, with the fields that switches
// read in the first; their bytes, if any, are in a separate pool. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/units.h"
#include "sim/scenario/topology.h"
#include "transport/endpoint.h"
#include "transport/message.h"
#include "wire/packet.h"

namespace spillway::sim {

using scenario::HostId;
using PacketIndex = std::uint32_t;
inline constexpr std::uint32_t kNone = UINT32_MAX;

enum class PacketKind : std::uint8_t {
  kSpillwayData,
  kSpillwayControl,
  kSpillwaySum,         // a sum packet with words, whole or cut; always has real bytes
  kSpillwaySumControl,  // a sum packet without words
  kTcp,
  kOther  // neither Spillway's nor the simulated TCP's, such as a tenant's or a real host's
};

inline bool is_sum(PacketKind kind) {
  return kind == PacketKind::kSpillwaySum || kind == PacketKind::kSpillwaySumControl;
}

// Ethernet, IPv4 and UDP headers in front of a frame's UDP payload.
inline constexpr std::uint32_t kFrameHeaderBytes = spillway_frame_overhead(0);

// A segment of simulated TCP; sequence numbers count segments.
struct TcpSegment {
  std::uint32_t flow = 0;
  std::uint32_t sequence = 0;      // of a data segment; of an ACK, the start of the run it reports
  std::uint32_t acknowledged = 0;  // all segments below this arrived
  std::uint32_t selective = 0;     // the segment that caused this ACK: the end of that run
  bool is_ack = false;
  bool echo_mark = false;
  bool retransmit = false;
  std::int64_t timestamp_ns = 0;
};

struct alignas(64) Packet {
  HostId from = 0;
  HostId to = 0;
  std::uint32_t label = 0;   // stands for the ports: per-flow ECMP hashes it with the addresses
  std::uint32_t bytes = 0;   // current frame size, including the Ethernet header
  PacketIndex next = kNone;  // chain of the pool and of queues
  PacketKind kind = PacketKind::kTcp;
  std::uint8_t stack = 0;  // index of the destination's stack
  std::uint8_t dscp = 0;
  std::uint8_t ecn = 0;
  std::uint8_t importance = 0;
  std::uint8_t priority = 0;
  bool corrupt = false;  // size-only packets: damaged, fails its check
  // Number of the frame's first bytes that the payload omits; 0 if it is the whole frame.
  std::uint8_t absent_bytes = kFrameHeaderBytes;
  std::uint32_t sent_bytes = 0;   // frame size when sent
  std::uint32_t payload = kNone;  // the pool's buffer with the frame's bytes; kNone: size-only
  wire::DataStamp data;
  TcpSegment tcp;
};
static_assert(sizeof(Packet) <= 128);

class PacketPool {
 public:
  // Returns a packet with default fields.
  PacketIndex allocate();
  // Returns a copy of this packet, with its own copy of the bytes.
  PacketIndex duplicate(PacketIndex index);
  void release(PacketIndex index);

  Packet& operator[](PacketIndex index) { return chunks_[index / kChunk][index % kChunk]; }
  // Fetches the packet into the cache.
  void prefetch(PacketIndex index) const {
    __builtin_prefetch(&chunks_[index / kChunk][index % kChunk]);
  }
  std::size_t in_use() const { return in_use_; }
  // The number of those that carry real bytes.
  std::size_t payloads_in_use() const { return buffers_.size() - free_buffers_.size(); }

  // Gives the packet `size` bytes of payload, for the caller to fill in.
  base::MutableByteView attach_payload(Packet& packet, std::size_t size);
  // The packet's payload; empty for size-only packets.
  base::MutableByteView payload(const Packet& packet);
  // Resizes a packet's payload, and the frame with it. New bytes are zero.
  void resize_payload(Packet& packet, std::uint32_t size);
  // Shortens the frame to `bytes`, and its payload, if any, with it.
  void trim(Packet& packet, std::uint32_t bytes);

 private:
  static constexpr std::uint32_t kChunk = 1024;  // packets allocated at a time

  void grow();

  std::vector<std::unique_ptr<Packet[]>> chunks_;
  PacketIndex free_ = kNone;
  std::size_t in_use_ = 0;
  std::vector<std::vector<std::uint8_t>> buffers_;
  std::vector<std::uint32_t> free_buffers_;
};

// Puts a datagram of the real transport into a simulated packet: its bytes, and the fields that
// switches read. The caller fills in destination, label and stack.
void fill_packet(const transport::Route& route, base::ByteView datagram, PacketPool& pool,
                 Packet& packet);

}  // namespace spillway::sim
