// SPDX-License-Identifier: Apache-2.0
//
// What two ends must agree on before a packet makes sense: the job, the message inside it, and the
// plan by which its tensor becomes packets: rows, coordinates per packet, size of the head.
//
// From the job's seed follows the rotation of every message. Ranks of a run have the seed from the
// run's key (seed_of), as they have the keys of their checks, so a receiver with another seed
// refuses packets instead of decoding them to noise.
//
// What the network carries decides the plan. Its MTU bounds a packet; its trim size bounds the
// head, which must hold at least one whole plane, or a trimmed packet would be a lost one. So a
// small trim size means fewer coordinates per packet, however large the MTU, and what room is left
// in the head is filled with further planes. Real switches cut at one global size, give or take a
// few bytes.
//
// Both ends compute the same plan from the same arguments; a plan is a pure value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "codec/row.h"
#include "wire/data_packet.h"
#include "wire/frame_overhead.h"
#include "wire/packet_auth.h"

namespace spillway::packetize {

struct Job {
  std::uint16_t id = 0;
  std::uint64_t epoch = 0;
  std::uint64_t seed = 0;
};

// The key of a message's rotations: different for every message and source, so that the errors of
// ranks and of operations are independent and average out.
std::uint64_t rotation_key(const Job& job, const wire::MessageId& message);

// Checks of packets that are not of a run, without a secret: whoever knows the seed can make them.
wire::PacketAuth seeded_auth(const Job& job, wire::Protection protection = wire::Protection::kTags);

enum class IpVersion : std::uint8_t { kV4, kV6 };

// What the network carries of a packet.
struct PacketLimits {
  unsigned mtu = 1500;
  // Bytes of a frame, counted from its Ethernet header, that a trimming switch leaves; 0 where
  // switches only drop.
  unsigned trim_bytes = 206;
  // How far below trim_bytes a real cut may fall.
  unsigned trim_slack_bytes = 4;
  IpVersion ip = IpVersion::kV4;

  // Ethernet, IP and UDP headers, and the last two alone.
  unsigned frame_overhead() const { return spillway_frame_overhead(ip == IpVersion::kV6); }
  unsigned datagram_overhead() const { return spillway_datagram_overhead(ip == IpVersion::kV6); }
};

// Rows of 2^13 stay in the first-level cache while they are rotated.
inline constexpr unsigned kDefaultRowLog2 = 13;
inline constexpr unsigned kDefaultPrecision = 16;

struct Encoding {
  unsigned precision = kDefaultPrecision;  // bits per coordinate that are sent, 1 to 32
  unsigned row_log2 = kDefaultRowLog2;
};

// Where a packet's coordinates lie.
struct PacketPlace {
  std::size_t row;
  std::size_t slot;   // among the row's packets
  std::size_t first;  // coordinate of the row
  std::size_t count;
};

class PacketPlan {
 public:
  // Fails, saying what would do, when no whole plane fits the trimmed size, or when the tensor
  // would need more packets than a message may have.
  static base::Result<PacketPlan> make(std::size_t tensor_length, const PacketLimits& limits,
                                       const Encoding& encoding);

  const codec::RowLayout& layout() const { return layout_; }
  unsigned planes() const { return planes_; }
  std::size_t coordinates_per_packet() const { return quanta_ * SPILLWAY_QUANTUM; }
  std::size_t quanta() const { return quanta_; }
  // Bytes of planes under the head's check, of a packet with `count` coordinates.
  std::size_t head_bytes(std::size_t count) const;
  std::size_t packet_count() const { return packet_count_; }
  std::size_t max_packet_size() const { return max_packet_size_; }
  // UDP payload bytes of all packets together.
  std::size_t wire_bytes() const;

  std::size_t first_packet(std::size_t row) const { return row * packets_per_full_row_; }
  std::size_t packets_in(std::size_t row) const;
  PacketPlace place(std::size_t packet) const;

 private:
  PacketPlan(const codec::RowLayout& layout, const Encoding& encoding, std::size_t quanta,
             std::size_t head_capacity);

  codec::RowLayout layout_;
  unsigned planes_;
  std::size_t quanta_;
  std::size_t head_capacity_;
  std::size_t packets_per_full_row_;
  std::size_t packet_count_;
  std::size_t max_packet_size_;
};

}  // namespace spillway::packetize
