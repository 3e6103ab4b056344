// SPDX-License-Identifier: Apache-2.0
//
// The faults of a soak world, as lines of a scenario: up to six at once, of links and hosts. A cut
// ends, unless the switch at the link's start has another equally short path.
#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "sim/scenario/topology.h"
#include "sim/soak/draw.h"

namespace spillway::sim {

class SoakFaults {
 public:
  // `duration` is about how long the jobs take. Continues the caller's stream of draws.
  SoakFaults(SoakDraw& draw, const scenario::Topology& topology, base::Duration duration,
             base::Duration peer_timeout);

  std::string draw();
  // The end of the last drawn fault that is not permanent.
  base::Instant over() const { return over_; }

 private:
  void add_direction(scenario::NodeId from, scenario::NodeId to);
  std::string draw_one();
  std::string draw_lossy(const std::string& link);
  std::string draw_cut();
  std::string draw_odd(const std::string& link);
  std::string draw_host_fault();
  std::uint64_t draw_clock_lead();  // in microseconds
  std::string draw_span();
  std::string any_link();

  SoakDraw& draw_;
  const scenario::Topology& topology_;
  base::Duration duration_;
  base::Duration peer_timeout_;
  std::vector<std::string> links_;
  std::vector<std::string> detours_;  // links between switches that have an alternative path
  bool has_gray_ = false;             // at most one gray link: the paths around it must work
  base::Instant over_;
};

}  // namespace spillway::sim
