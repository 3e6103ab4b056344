// SPDX-License-Identifier: Apache-2.0
//
// The agreement of sender and receiver: the job, the message, and the plan by which a tensor
// becomes packets (rows, coordinates per packet, head size). Also a coded message in memory, laid
// out by the plan.
//
// The job's seed determines the rotation of every message. Ranks of a run derive it from the run's
// key, like the keys of their checks. So a receiver with another seed refuses packets
// instead of decoding them to noise.
//
// The network decides the plan. Its MTU bounds a packet. Its trim size bounds the head, which must
// hold at least one whole plane; otherwise a trimmed packet would be a lost one. So a small trim
// size means few coordinates per packet, whatever the MTU; room left in the head is filled with
// further planes. Real switches trim to one global size, give or take a few bytes.
//
// Both ends compute the same plan from the same arguments. Plans are values, functions are pure:
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/row_codec.h"
#include "wire/data_packet.h"
#include "wire/packet.h"
#include "wire/packet_auth.h"

namespace spillway::packetize {

struct Job {
  std::uint16_t id = 0;
  std::uint64_t epoch = 0;
  std::uint64_t seed = 0;
};

// The key of a message's rotations. It differs for every message and source, so that the errors of
// ranks and operations are independent and average out.
std::uint64_t rotation_key(const Job& job, const wire::MessageId& message);

// Checks for packets that belong to no run and have no secret: anybody who knows the seed can make
// them.
wire::PacketAuth seeded_auth(const Job& job, wire::Protection protection = wire::Protection::kTags);

enum class IpVersion : std::uint8_t { kV4, kV6 };

// The network's limits on a packet.
struct PacketLimits {
  unsigned mtu = 1500;
  // Size of a trimmed frame in bytes, counted from its Ethernet header; 0 if switches only drop.
  unsigned trim_bytes = 206;
  // How many bytes below trim_bytes a real trim may fall.
  unsigned trim_slack_bytes = 4;
  IpVersion ip = IpVersion::kV4;
  bool may_be_cut = true;  // by switches of which nobody told the trim size, too

  // The limits of packets on a stream: the longest that the format allows, and nothing trims them.
  static constexpr PacketLimits on_stream() {
    return {.mtu = SPILLWAY_MAX_PACKET + spillway_datagram_overhead(/*is_ipv6=*/false),
            .trim_bytes = 0,
            .may_be_cut = false};
  }

  // One check over a packet's whole tail saves bytes. Where cuts are at one known size, the tail is
  // lost in each; where nobody knows, several checks save a part of it.
  bool has_segmented_tails() const { return trim_bytes == 0 && may_be_cut; }

  // Bytes of the Ethernet, IP and UDP headers, and of IP and UDP alone.
  unsigned frame_overhead() const { return spillway_frame_overhead(ip == IpVersion::kV6); }
  unsigned datagram_overhead() const { return spillway_datagram_overhead(ip == IpVersion::kV6); }
};

// Rows of 2^13 fit the L1 cache while they are rotated.
inline constexpr unsigned kDefaultRowLog2 = 13;
inline constexpr unsigned kDefaultPrecision = 16;

struct Encoding {
  unsigned precision = kDefaultPrecision;  // bits sent per coordinate, 1 to 32
  unsigned row_log2 = kDefaultRowLog2;
};

// The coordinates of one packet.
struct PacketPlace {
  std::size_t row;
  std::size_t slot;   // index among the row's packets
  std::size_t first;  // first coordinate within the row
  std::size_t count;
};

class PacketPlan {
 public:
  // Fails if no whole plane fits the trimmed size, or if the tensor needs more packets than a
  // message may have. The error says what would work.
  static base::Result<PacketPlan> make(std::size_t tensor_length, const PacketLimits& limits,
                                       const Encoding& encoding);

  const codec::RowLayout& layout() const { return layout_; }
  unsigned planes() const { return shape_.planes; }
  std::size_t coordinates_per_packet() const { return quanta_ * SPILLWAY_QUANTUM; }
  std::size_t quanta() const { return quanta_; }
  // Bytes of planes under the head's check in a packet with `count` coordinates.
  std::size_t head_bytes(std::size_t count) const;
  bool has_segmented_tails() const { return shape_.has_segmented_tails; }
  std::size_t packet_count() const { return packet_count_; }
  std::size_t max_packet_size() const { return max_packet_size_; }
  // Total UDP payload bytes of all packets.
  std::size_t wire_bytes() const;

  std::size_t first_packet(std::size_t row) const { return row * packets_per_full_row_; }
  std::size_t packets_in(std::size_t row) const;
  PacketPlace place(std::size_t packet) const;

 private:
  // All packets of a plan have this in common.
  struct Shape {
    unsigned planes = 0;
    std::size_t head_capacity = 0;  // most bytes of planes in a head
    bool has_segmented_tails = true;

    // Bytes of a packet with so many quanta.
    std::size_t packet_size(std::size_t quanta) const;
  };

  PacketPlan(const codec::RowLayout& layout, const Shape& shape, std::size_t quanta);
  static std::size_t choose_quanta(const PacketLimits& limits, const Shape& shape);

  codec::RowLayout layout_;
  Shape shape_;
  std::size_t quanta_;
  std::size_t packets_per_full_row_;
  std::size_t packet_count_;
  std::size_t max_packet_size_;
};

// ------------------------------------------------------------------ a message in memory
//
// A coded message in memory: its packets' planes, at a fixed stride, and its rows' headers. A
// sender's CPU or GPU encoder fills it, and packets are written from it. A receiver fills it from
// packets.
//
// The memory may be borrowed; it returns to its lender when the last owner releases it.

using PlaneMemory = std::shared_ptr<std::uint8_t[]>;

// Bytes from one packet's planes to the next packet's, and bytes of all of them.
std::size_t plane_stride(const PacketPlan& plan);
std::size_t plane_memory_bytes(const PacketPlan& plan);

struct KeptPlanes {
  PlaneMemory memory;                  // plane_memory_bytes() of the plan
  std::vector<codec::RowHeader> rows;  // one entry per row; empty if no packet of the row arrived
  std::vector<std::uint16_t> bytes;    // per packet: bytes of its planes present, from the first on

  // Starts empty, in memory of its own or in the given memory.
  static KeptPlanes make(const PacketPlan& plan);
  static KeptPlanes make_in(const PacketPlan& plan, PlaneMemory memory);

  // The planes of a packet that are present.
  base::ByteView planes_of(const PacketPlan& plan, std::size_t packet) const {
    return {memory.get() + packet * plane_stride(plan), bytes[packet]};
  }
};

// The header of a packet without the transport's fields. Its stamp holds only the packet's index
// and whether it is the message's last.
wire::DataHeader packet_header(const PacketPlan& plan, std::size_t packet,
                               const codec::RowHeader& row);

}  // namespace spillway::packetize
