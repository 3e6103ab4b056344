// SPDX-License-Identifier: Apache-2.0
//
// The sending end of one direction of a link (Transmitter), with the faults of that direction
// (LinkFaults). It puts one packet at a time on the wire and has it arrive at the far end when its
// last bit does.
//
// A frame occupies the link for its bytes plus SPILLWAY_WIRE_OVERHEAD at the link's rate, to the
// nanosecond: what back-to-back frames need beyond whole nanoseconds is carried over, so a busy
// link runs at its rate exactly. Faults act when a packet has been sent: a lost one took its time
// on the wire. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/random.h"
#include "base/units.h"
#include "scenario/fault.h"
#include "sim/event_queue.h"
#include "sim/packet.h"

namespace spillway::sim {

struct PacketFate {
  bool lost = false;
  bool twice = false;
  base::Duration extra_delay;
};

// What becomes of each packet. Each fault draws from its own stream, and only while it is active,
// so adding one does not change what another does.
class LinkFaults {
 public:
  // `link_key` and `rate` are the link's own; the fault must be one of a link's that validate()
  // accepts.
  void add(const scenario::Fault& fault, std::uint64_t link_key, base::BitRate rate);

  // Says what happens to a packet sent at `now`, and damages it where that is what happens.
  PacketFate act(Packet& packet, PacketPool& pool, base::Instant now);
  bool down(base::Instant now) const;

 private:
  struct Active {
    scenario::Fault fault;
    base::RandomSequence random;
    base::Duration longest_pause;  // between two packets of one burst
    bool in_burst = false;
    base::Instant last{};  // when the latest packet was sent
  };

  static bool loses(Active& active, base::Instant now);
  static void damage(Packet& packet, PacketPool& pool, base::RandomSequence& random);

  std::vector<Active> active_;
};

struct LinkEnd {
  Actor* far = nullptr;  // its events are packets that arrive: the argument is the PacketIndex
  base::BitRate rate;
  base::Duration delay;
  std::uint64_t key = 0;  // for the link's faults
};

struct LinkCounters {
  std::uint64_t packets = 0;  // put on the wire, those that get lost included
  std::uint64_t bytes = 0;    // of their frames
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
  base::Instant busy_until_{base::nanoseconds(-1)};  // before time began: never used
  std::uint64_t remainder_ = 0;                      // beyond busy_until_, in nanoseconds / rate
  std::unique_ptr<LinkFaults> faults_;
  LinkCounters counters_;
};

}  // namespace spillway::sim
