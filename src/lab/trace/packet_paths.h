// SPDX-License-Identifier: Apache-2.0
//
// Joins what was seen of packets at hosts and in the switch to one path per packet, and says what
// became of each. A packet is known by its header, which differs between any two packets of a
// transport, and the host it is for. Of packets that share both, however that came about, the first
// that left is taken to be the first that was decided about and the first that arrived.
//
// Sights and events may come in any order, and any of them may be missing. Pure; any thread.
#pragma once

#include <optional>
#include <vector>

#include "base/units.h"
#include "lab/trace/packet_sight.h"
#include "lab/trace/trace_summary.h"

namespace spillway::lab {

// What was seen of one packet, in the order in which it was; null where it was not. At least one
// was.
struct PacketPath {
  const PacketSight* left = nullptr;
  const spillway_event* decided = nullptr;
  const PacketSight* arrived = nullptr;

  const spillway_packet_header& header() const;
  std::uint32_t to() const;
  base::Instant begin() const;
  // Of the bar between leaving and arriving: the decision, which is not before the leaving whatever
  // the clocks say, or, unknown, the leaving.
  std::optional<base::Instant> inside_from() const;
  bool is_dropped() const;  // by the switch, or by a fault of the link behind it
};

base::Instant time_of(const spillway_event& event);

// In the order of their beginnings; they point into the log. Where packets were left out, those of
// which only the end was kept are left out too.
std::vector<PacketPath> join_paths(const PacketLog& log);

PacketOutcome outcome_of(const PacketPath& path, const PacketLog& log);

TraceSummary summarise_paths(const std::vector<PacketPath>& paths, const PacketLog& log);

}  // namespace spillway::lab
