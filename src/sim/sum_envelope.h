// SPDX-License-Identifier: Apache-2.0
//
// A sum packet (wire/sum_packet.h) as it lies in a packet of the pool: in a whole frame with its
// addresses, as the fabric carries it, or as a UDP payload whose addresses stand beside it, as
// simulated hosts send it. Switches that add see no difference.
//
// An envelope is good until its packet is released or given another payload. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "dataplane/sum_frame.h"
#include "sim/packet.h"

namespace spillway::sim {

// Where a packet comes from and goes to in the network, beside what its frame says.
struct SumPlace {
  HostId from = 0;
  HostId to = 0;
  std::uint32_t label = 0;
  std::uint8_t stack = 0;
};

class SumEnvelope {
 public:
  // Nothing: there is no sum packet in it, or none that can be read.
  static std::optional<SumEnvelope> open(PacketPool& pool, PacketIndex index);

  // The packet's header; congestion that the packet met is among its marks. Changes of it, and of
  // the words, are the packet's after write().
  spillway_sum_image& image() { return image_; }
  const spillway_sum_image& image() const { return image_; }
  bool is_plain() const { return sum_.is_plain != 0; }    // can be changed
  bool has_words() const { return sum_.has_words != 0; }  // is as long as it was sent
  std::uint8_t* words();                                  // has_words(), or after turn()

  spillway_sum_route route() const;
  SumPlace place() const;

  void write();
  // Goes on in the place of a packet that was absorbed.
  void go_by(const spillway_sum_route& route, const SumPlace& place);
  // Goes to whom a packet came from that had this route and place.
  void address_to(const spillway_sum_route& route, const SumPlace& place);
  // Goes back where it came from, grown to the size of a packet with words.
  void turn(std::uint8_t traffic_class);

 private:
  SumEnvelope(PacketPool& pool, Packet& packet) : pool_(&pool), packet_(&packet) {}

  bool read();
  bool is_frame() const { return packet_->absent_bytes == 0; }
  base::MutableByteView bytes() const { return pool_->payload(*packet_); }
  std::uint8_t* begin() const { return bytes().data(); }
  const std::uint8_t* end() const { return bytes().data() + bytes().size(); }
  std::uint8_t* payload() const;
  void set_traffic_class(std::uint8_t traffic_class);

  PacketPool* pool_;
  Packet* packet_;
  spillway_layout layout_ = {};  // of a frame
  spillway_sum_frame sum_ = {};
  spillway_sum_image image_ = {};
};

}  // namespace spillway::sim
