// SPDX-License-Identifier: Apache-2.0
//
// Makes packets of the network from what ports read, and decides whom they are for. Frames of
// interfaces go where their destination's station was last seen, to all other hosts if it was seen
// nowhere or means many; datagrams of relays say it themselves. Nothing goes back where it came
// from (dataplane/station.h). A copy per host: the sender's emulated link carries each of them.
//
// Packets are handed over as arrivals, which whoever owns the ports takes out after a round of
// reading and puts in order. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "fabric/mac_table.h"
#include "sim/packet.h"

namespace spillway::fabric {

struct Arrival {
  base::Instant at;  // by the monotonic clock
  scenario::HostId from = 0;
  sim::PacketIndex packet = sim::kNone;
};

struct IntakeCounters {
  std::uint64_t frames = 0;     // read
  std::uint64_t unknown = 0;    // neither for a known host nor for all
  std::uint64_t same_port = 0;  // for somebody behind the port they came in at
  std::uint64_t foreign = 0;    // to a relay, and not Spillway's
};

class Intake {
 public:
  Intake(sim::PacketPool& pool, std::uint32_t hosts) : pool_(pool), hosts_(hosts) {}

  void take_frame(scenario::HostId from, base::ByteView frame, base::Instant at);
  struct Datagram {
    std::optional<scenario::HostId> from;  // nothing: it cannot be told
    scenario::HostId to = 0;
    std::uint8_t tos = 0;
    std::uint32_t label = 0;
    base::ByteView payload;
  };
  void take_datagram(const Datagram& datagram, base::Instant at);

  // A port stopped reading with more to come: what happened after `at` is not known yet.
  void stopped_at(base::Instant at);
  base::Instant known_until(base::Instant now) const;

  // Emptied by whoever takes them out, with next_round().
  std::vector<Arrival>& arrivals() { return arrivals_; }
  void next_round();
  const IntakeCounters& counters() const { return counters_; }

 private:
  void add_frame_for(scenario::HostId to, const sim::Packet& like, base::ByteView frame,
                     base::Instant at);
  void forward(const sim::Packet& like, std::optional<scenario::HostId> to, base::ByteView frame,
               base::Instant at);
  void flood(const sim::Packet& like, base::ByteView frame, base::Instant at);

  sim::PacketPool& pool_;
  std::uint32_t hosts_;
  MacTable stations_;
  std::vector<Arrival> arrivals_;
  base::Instant stopped_at_;
  bool stopped_ = false;
  IntakeCounters counters_;
};

}  // namespace spillway::fabric
