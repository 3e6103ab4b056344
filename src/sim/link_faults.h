// SPDX-License-Identifier: Apache-2.0
//
// The faults of one direction of one link at work: what becomes of each packet it sends. Each fault
// draws from its own stream, and only while it is active, so adding one does not change what
// another does. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "base/units.h"
#include "sim/faults.h"
#include "sim/packet.h"

namespace spillway::sim {

struct PacketFate {
  bool lost = false;
  bool twice = false;
  base::Duration extra_delay;
};

class LinkFaults {
 public:
  // `link_key` and `rate` are the link's own; the fault must be one of a link's that validate()
  // accepts.
  void add(const Fault& fault, std::uint64_t link_key, base::BitRate rate);

  // Says what happens to a packet sent at `now`, and damages it where that is what happens.
  PacketFate act(Packet& packet, PacketPool& pool, base::Instant now);
  bool down(base::Instant now) const;

 private:
  struct Active {
    Fault fault;
    base::RandomSequence random;
    base::Duration longest_pause;  // between two packets of one burst
    bool in_burst = false;
    base::Instant last{};  // when the latest packet was sent
  };

  static bool loses(Active& active, base::Instant now);
  static void damage(Packet& packet, PacketPool& pool, base::RandomSequence& random);

  std::vector<Active> active_;
};

}  // namespace spillway::sim
