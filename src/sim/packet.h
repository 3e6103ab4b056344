// SPDX-License-Identifier: Apache-2.0
//
// A packet in the simulated network. It always has a size, addresses and the fields switches look
// at; a Spillway data packet may carry only its stamp (for scale), everything else that Spillway
// sends carries its real bytes. Packets live in a pool and are named by index: no allocation per
// packet once the pool has grown to what a run needs. A reference to a packet stays good until the
// packet is released; a view of its payload until the payload is cut or the packet released.
//
// Packets are what the simulator touches most, so they are small (two cache lines, what switches
// look at first) and keep their bytes, if they have any, in a side pool.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/units.h"
#include "scenario/topology.h"
#include "transport/message.h"
#include "wire/frame_overhead.h"

namespace spillway::sim {

using scenario::HostId;
using PacketIndex = std::uint32_t;
inline constexpr std::uint32_t kNone = UINT32_MAX;

enum class PacketKind : std::uint8_t {
  kSpillwayData,
  kSpillwayControl,
  kSpillwaySum,         // a sum packet with words, whole or cut; always with its bytes
  kSpillwaySumControl,  // one without
  kTcp,
  kOther  // neither Spillway's nor the simulated TCP's, such as a tenant's or a real host's
};

inline bool is_sum(PacketKind kind) {
  return kind == PacketKind::kSpillwaySum || kind == PacketKind::kSpillwaySumControl;
}

// Ethernet, IPv4 and UDP headers: what a frame has in front of its UDP payload.
inline constexpr std::uint32_t kFrameHeaderBytes = spillway_frame_overhead(0);

// What the rival's hosts say to each other; sequence numbers count segments.
struct TcpSegment {
  std::uint32_t flow = 0;
  std::uint32_t sequence = 0;      // of a data segment; of an ack, where the run it tells of begins
  std::uint32_t acknowledged = 0;  // all segments below this arrived
  std::uint32_t selective = 0;     // the segment that caused this ack: the end of that run
  bool is_ack = false;
  bool echo_mark = false;
  bool retransmit = false;
  std::int64_t timestamp_ns = 0;
};

struct alignas(64) Packet {
  HostId from = 0;
  HostId to = 0;
  std::uint32_t label = 0;   // stands for the ports: what per-flow ECMP hashes besides addresses
  std::uint32_t bytes = 0;   // of the frame, from its Ethernet header, as it is now
  PacketIndex next = kNone;  // the pool's and queues' chain
  PacketKind kind = PacketKind::kTcp;
  std::uint8_t stack = 0;  // which of the destination's stacks it is for
  std::uint8_t dscp = 0;
  std::uint8_t ecn = 0;
  std::uint8_t importance = 0;
  std::uint8_t priority = 0;
  bool corrupt = false;  // size-only packets: damaged on the way, fails its check
  // How many of the frame's first bytes the payload leaves out; 0 where it is the whole frame.
  std::uint8_t absent_bytes = kFrameHeaderBytes;
  std::uint32_t sent_bytes = 0;   // of the frame when it was sent
  std::uint32_t payload = kNone;  // the pool's buffer with the frame's bytes; kNone: size-only
  wire::DataStamp data;
  TcpSegment tcp;
};
static_assert(sizeof(Packet) <= 128);

class PacketPool {
 public:
  // A packet with every field at its default.
  PacketIndex allocate();
  // Another packet like this one, with its own copy of the bytes.
  PacketIndex duplicate(PacketIndex index);
  void release(PacketIndex index);

  Packet& operator[](PacketIndex index) { return chunks_[index / kChunk][index % kChunk]; }
  // Fetches the packet into the cache.
  void prefetch(PacketIndex index) const {
    __builtin_prefetch(&chunks_[index / kChunk][index % kChunk]);
  }
  std::size_t in_use() const { return in_use_; }
  // Of those, the ones that carry real bytes.
  std::size_t payloads_in_use() const { return buffers_.size() - free_buffers_.size(); }

  // Gives the packet `size` bytes of payload, for the caller to fill in.
  base::MutableByteView attach_payload(Packet& packet, std::size_t size);
  // The packet's payload; empty for size-only packets.
  base::MutableByteView payload(const Packet& packet);
  // Gives a packet with a payload another size; the frame grows or shrinks with it, and what is new
  // is zero.
  void resize_payload(Packet& packet, std::uint32_t size);
  // Shortens the frame to `bytes` and its payload, if it has one, with it.
  void trim(Packet& packet, std::uint32_t bytes);

 private:
  static constexpr std::uint32_t kChunk = 1024;  // packets that are made at a time

  void grow();

  std::vector<std::unique_ptr<Packet[]>> chunks_;
  PacketIndex free_ = kNone;
  std::size_t in_use_ = 0;
  std::vector<std::vector<std::uint8_t>> buffers_;
  std::vector<std::uint32_t> free_buffers_;
};

}  // namespace spillway::sim
