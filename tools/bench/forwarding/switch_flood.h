// SPDX-License-Identifier: Apache-2.0
//
// Measures whether the switch at XDP still works under ten times as much garbage as its port
// carries (bench/forwarding/rig.h). Throws CommandError.
#pragma once

namespace spillway::bench {

struct FloodOutcome {
  double link_mbit = 0.0;
  double garbage_of_link = 0.0;  // offered load
  double spillway_of_link = 0.0;
  double spillway_arrived_share = 0.0;
  double spillway_whole_share = 0.0;  // untrimmed
  double admitted_of_link = 0.0;      // what the port let through over time
  double arrived_of_sent = 0.0;       // share of the frames that it sent
};

// Runs on this CPU, for a second.
FloodOutcome measure_flood(unsigned cpu);

}  // namespace spillway::bench
