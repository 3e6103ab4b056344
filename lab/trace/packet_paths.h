// SPDX-License-Identifier: Apache-2.0
//
// Joins what was seen of packets at hosts and in the switch to one path per packet, and determines
// what happened to each. A packet is identified by its header, which differs between any two
// packets of a transport, and by the host it is for. If several packets share both, the first that
// left is taken to be the first that was decided about and the first that arrived.
//
// Sights and events may come in any order, and any of them may be missing. Pure; any thread.
#pragma once

#include <optional>
#include <vector>

#include "base/units.h"
#include "lab/trace/packet_sight.h"
#include "lab/trace/trace_summary.h"

namespace spillway::lab {

// What was seen of one packet, in order; null where it was not seen. At least one is set.
struct PacketPath {
  const PacketSight* left = nullptr;
  const spillway_event* decided = nullptr;
  const PacketSight* arrived = nullptr;

  const spillway_packet_header& header() const;
  std::uint32_t to() const;
  base::Instant begin() const;
  // Start of the bar between departure and arrival: the decision, but not before the departure,
  // whatever the clocks say. Without a decision it is the departure.
  std::optional<base::Instant> inside_from() const;
  bool is_dropped() const;  // by the switch, or by a fault of the link after it
};

base::Instant time_of(const spillway_event& event);

// Sorted by begin(); they point into the log. If packets were left out, paths without a departure
// are left out, too.
std::vector<PacketPath> join_paths(const PacketLog& log);

PacketOutcome outcome_of(const PacketPath& path, const PacketLog& log);

TraceSummary summarise_paths(const std::vector<PacketPath>& paths, const PacketLog& log);

}  // namespace spillway::lab
