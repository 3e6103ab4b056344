// SPDX-License-Identifier: Apache-2.0
//
// Whether the switch at XDP still does its work under ten times as much garbage as its port carries
// (forwarding_rig.h). Throws CommandError.
#pragma once

namespace spillway::bench {

struct FloodOutcome {
  double link_mbit = 0.0;
  double garbage_of_link = 0.0;  // what was offered
  double spillway_of_link = 0.0;
  double spillway_arrived_share = 0.0;
  double spillway_whole_share = 0.0;  // untrimmed
  double admitted_of_link = 0.0;      // what the port let through, by the clock
  double arrived_of_sent = 0.0;       // of the frames it sent on
};

// On this processor, for a second.
FloodOutcome measure_flood(unsigned cpu);

}  // namespace spillway::bench
