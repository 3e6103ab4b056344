// SPDX-License-Identifier: Apache-2.0
//
// The sending end of one direction of a link: puts one packet at a time on the wire and has it
// arrive at the far end when its last bit does.
//
// A frame occupies the link for its bytes plus kWireOverhead at the link's rate, to the nanosecond:
// what back-to-back frames need beyond whole nanoseconds is carried over, so a busy link runs at
// its rate exactly. Faults act when a packet has been sent: a lost one took its time on the wire.
// One thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/units.h"
#include "dataplane/port.h"
#include "sim/event_queue.h"
#include "sim/link_faults.h"
#include "sim/packet.h"

namespace spillway::sim {

// Preamble and start of frame 8, frame check sequence 4, gap 12.
inline constexpr std::uint32_t kWireOverhead = SPILLWAY_WIRE_OVERHEAD;

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
  void add_fault(const Fault& fault);

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
