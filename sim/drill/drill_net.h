// SPDX-License-Identifier: Apache-2.0
//
// Connections between a drill's processes, like TCP. A connection delivers its messages in order,
// and all of them while it lasts; connections are not ordered among each other. Messages across a
// cut are held until it heals, unless the connection breaks first. A process that ends closes its
// connections after its last message.
//
// Decides what arrives when; the run (drill_run.h) schedules it. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/units.h"

namespace spillway::sim {

using ProcessIndex = std::uint32_t;

struct DrillPacket {
  ProcessIndex from = 0;
  ProcessIndex to = 0;
  std::uint32_t connection = 0;  // number of the pair's connection
  bool is_close = false;
  std::vector<std::uint8_t> bytes{};
};

class DrillNet {
 public:
  struct Delays {
    base::Duration least{};
    base::Duration most{};
  };

  DrillNet(std::size_t processes, Delays delays, std::uint64_t seed);

  bool is_connected(ProcessIndex a, ProcessIndex b) const { return link(a, b).is_open; }
  void connect(ProcessIndex a, ProcessIndex b);
  void disconnect(ProcessIndex a, ProcessIndex b);

  // The arrival time of a packet sent now; unset if there is no connection.
  std::optional<base::Instant> send(DrillPacket& packet, base::Instant now);
  // Call at that time: false if the packet does not arrive. Keeps the packet if a cut holds it.
  bool arrives(DrillPacket& packet);
  base::Duration draw_delay();

  // Cuts `part` off from all others; if `other` is given, only from `other`.
  std::size_t cut(std::vector<bool> part, std::vector<bool> other = {});
  // Returns the held packets, in order, except those that another cut still holds.
  std::vector<DrillPacket> heal(std::size_t cut);
  bool is_cut(ProcessIndex a, ProcessIndex b) const;
  std::vector<std::pair<ProcessIndex, ProcessIndex>> pairs_of(std::size_t cut) const;

 private:
  struct Link {
    bool is_open = false;
    std::uint32_t connection = 0;
  };
  struct Cut {
    bool is_on = true;
    std::vector<bool> part{};
    std::vector<bool> other{};

    bool parts(ProcessIndex a, ProcessIndex b) const {
      return other.empty() ? part[a] != part[b] : (part[a] && other[b]) || (part[b] && other[a]);
    }
  };

  std::size_t at(ProcessIndex a, ProcessIndex b) const { return a * processes_ + b; }
  const Link& link(ProcessIndex a, ProcessIndex b) const {
    return links_[a < b ? at(a, b) : at(b, a)];
  }
  Link& link(ProcessIndex a, ProcessIndex b) { return links_[a < b ? at(a, b) : at(b, a)]; }

  std::size_t processes_;
  Delays delays_;
  base::RandomSequence random_;
  std::vector<Link> links_;
  std::vector<base::Instant> last_arrival_;
  std::vector<Cut> cuts_{};
  std::map<std::size_t, std::vector<DrillPacket>> held_{};  // by direction
};

}  // namespace spillway::sim
