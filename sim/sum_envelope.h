// SPDX-License-Identifier: Apache-2.0
//
// A sum packet (wire/sum_packet.h) within a packet of the pool. It is either a whole frame with its
// addresses, as in the fabric, or a UDP payload with the addresses beside it, as simulated hosts
// send it. Switches that add handle both alike.
//
// An envelope is valid until its packet is released or gets another payload. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "sim/packet.h"
#include "switch/dataplane/sum_frame.h"

namespace spillway::sim {

// The source and destination of a packet in the network, besides what its frame says.
struct SumPlace {
  HostId from = 0;
  HostId to = 0;
  std::uint32_t label = 0;
  std::uint8_t stack = 0;
};

class SumEnvelope {
 public:
  // Empty if the packet is no sum packet or cannot be read.
  static std::optional<SumEnvelope> open(PacketPool& pool, PacketIndex index);

  // The packet's header; its marks include congestion that the packet met. write() applies changes
  // of the header and the words to the packet.
  spillway_sum_image& image() { return image_; }
  const spillway_sum_image& image() const { return image_; }
  bool is_plain() const { return sum_.is_plain != 0; }    // can be changed
  bool has_words() const { return sum_.has_words != 0; }  // not cut
  std::uint8_t* words();                                  // requires has_words() or a previous
                                                          // turn()

  spillway_sum_route route() const;
  SumPlace place() const;

  void write();
  // Sends the packet on with the route and place of an absorbed one.
  void go_by(const spillway_sum_route& route, const SumPlace& place);
  // Addresses the packet to the sender of a packet with this route and place.
  void address_to(const spillway_sum_route& route, const SumPlace& place);
  // Returns the packet to its source, grown to the size of a packet with words.
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
