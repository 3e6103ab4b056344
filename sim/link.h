// SPDX-License-Identifier: Apache-2.0
//
// The sending end of one direction of a link (Transmitter), with the faults of that direction
// (LinkFaults). It puts one packet at a time on the wire. The packet arrives at the far end when
// its last bit does.
//
// A frame occupies the link for its bytes plus SPILLWAY_WIRE_OVERHEAD at the link's rate. Fractions
// of a nanosecond are carried over to the next of back-to-back frames, so a busy link runs at
// exactly its rate. Faults act after a packet was sent: a lost packet occupies the wire as well.
// One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/random.h"
#include "base/units.h"
#include "sim/event_queue.h"
#include "sim/packet.h"
#include "sim/scenario/topology.h"

namespace spillway::sim {

struct PacketFate {
  bool lost = false;
  bool twice = false;
  base::Duration extra_delay;
};

// Decides the fate of each packet. Each fault draws from its own stream, and only while it is
// active, so adding one does not change what another does.
class LinkFaults {
 public:
  // `link_key` and `rate` belong to the link; `fault` must be a link fault that validate() accepts.
  void add(const scenario::Fault& fault, std::uint64_t link_key, base::BitRate rate);

  // Decides the fate of a packet sent at `now`; a corruption damages it here.
  PacketFate act(Packet& packet, PacketPool& pool, base::Instant now);
  bool down(base::Instant now) const;

 private:
  struct Active {
    scenario::Fault fault;
    base::RandomSequence random;
    base::Duration longest_pause;  // between two packets of one burst
    bool in_burst = false;
    base::Instant last{};  // send time of the latest packet
  };

  static bool loses(Active& active, base::Instant now);
  static void damage(Packet& packet, PacketPool& pool, base::RandomSequence& random);

  std::vector<Active> active_;
};

struct LinkEnd {
  Actor* far = nullptr;  // receives arriving packets as events; the argument is the PacketIndex
  base::BitRate rate;
  base::Duration delay;
  std::uint64_t key = 0;  // for the link's faults
};

struct LinkCounters {
  std::uint64_t packets = 0;  // sent, including those that are lost
  std::uint64_t bytes = 0;    // of frames
  std::uint64_t lost = 0;     // to faults
  std::uint64_t duplicated = 0;
};

class Transmitter {
 public:
  Transmitter(EventQueue& events, PacketPool& pool, const LinkEnd& link);

  bool busy(base::Instant now) const { return busy_until_ > now; }
  base::Instant busy_until() const { return busy_until_; }
  bool down(base::Instant now) const { return faults_ != nullptr && faults_->down(now); }
  const LinkCounters& counters() const { return counters_; }
  const LinkEnd& link() const { return link_; }

  // The link must not be busy.
  void send(PacketIndex index, base::Instant now);
  void add_fault(const scenario::Fault& fault);

 private:
  void occupy(std::uint32_t bytes, base::Instant now);
  void arrive_with_faults(PacketIndex index, base::Instant now);

  EventQueue* events_;
  PacketPool* pool_;
  LinkEnd link_;
  base::Instant busy_until_{base::nanoseconds(-1)};  // before time began, so that it is never equal
                                                     // to now
  std::uint64_t remainder_ = 0;                      // beyond busy_until_, in nanoseconds / rate
  std::unique_ptr<LinkFaults> faults_;
  LinkCounters counters_;
};

}  // namespace spillway::sim
