// SPDX-License-Identifier: Apache-2.0
//
// The way of a real frame into the fabric (Ingress), and where hosts were last seen (MacTable).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "sim/packet.h"
#include "sim/scenario/topology.h"
#include "switch/dataplane/station.h"

namespace spillway::fabric {

// Which host a station (a MAC address in a VLAN, dataplane/station.h) was last seen at, as in a
// learning switch. Holds kMacTableSize stations. Each may use only a few entries and replaces the
// oldest of them: a flood of forged addresses makes the fabric flood frames, not grow. One thread.

inline constexpr std::size_t kMacTableSize = 4096;
inline constexpr std::size_t kMacBytes = SPILLWAY_ADDRESS_BYTES;

class MacTable {
 public:
  MacTable() : entries_(kMacTableSize) {}

  void learn(const spillway_station& station, scenario::HostId host);
  std::optional<scenario::HostId> find(const spillway_station& station) const;

 private:
  static constexpr std::size_t kWays = 4;

  struct Entry {
    std::uint64_t station = kNoStation;
    scenario::HostId host = 0;
    std::uint64_t learnt = 0;
  };
  static constexpr std::uint64_t kNoStation = UINT64_MAX;

  std::vector<Entry> entries_;
  std::uint64_t clock_ = 0;
};

// Turns what ports read into packets of the network and decides on their receivers. Frames of
// interfaces go where their destination's station was last seen; frames for unknown stations or for
// groups go to all other hosts. Datagrams of relays name their receiver. Nothing goes back where it
// came from (dataplane/station.h). Each receiver gets a copy, and the sender's emulated link
// carries all copies.
//
// Packets wait as arrivals. After a round of reading, the owner of the ports takes them out and
// sorts them. One thread.

struct Arrival {
  base::Instant at;  // by the monotonic clock
  scenario::HostId from = 0;
  sim::PacketIndex packet = sim::kNone;
};

struct IngressCounters {
  std::uint64_t frames = 0;     // read
  std::uint64_t unknown = 0;    // too short, or from an unknown relay peer
  std::uint64_t same_port = 0;  // receiver behind the ingress port
  std::uint64_t foreign = 0;    // at a relay: not Spillway packets
};

class Ingress {
 public:
  Ingress(sim::PacketPool& pool, std::uint32_t hosts) : pool_(pool), hosts_(hosts) {}

  void take_frame(scenario::HostId from, base::ByteView frame, base::Instant at);
  struct Datagram {
    std::optional<scenario::HostId> from;  // null: unknown
    scenario::HostId to = 0;
    std::uint8_t tos = 0;
    std::uint32_t label = 0;
    base::ByteView payload;
  };
  void take_datagram(const Datagram& datagram, base::Instant at);

  // A port stopped reading although more frames waited: later than `at`, nothing is known yet.
  void stopped_at(base::Instant at);
  base::Instant known_until(base::Instant now) const;

  // The owner of the ports empties it, with next_round().
  std::vector<Arrival>& arrivals() { return arrivals_; }
  void next_round();
  const IngressCounters& counters() const { return counters_; }

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
  IngressCounters counters_;
};

}  // namespace spillway::fabric
