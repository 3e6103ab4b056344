// SPDX-License-Identifier: Apache-2.0
//
// How fast frames go from one port to another on one core (kernel/live_switch.h): through the
// switch in the kernel at XDP and at tc, a Linux bridge, and the switch in user space. What counts
// is what arrived behind the second port. Queues are empty throughout: this is the cost of passing.
//
// And whether the switch at XDP still does its work under ten times as much garbage as its port
// carries. Throws CommandError.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::cli {

struct ForwardingOptions {
  unsigned rounds = 5;  // interleaved; medians count
  std::uint32_t frames = 300'000;
  unsigned cpu = 0;
};

struct ForwardingSpeed {
  std::string forwarder;
  std::uint32_t frame_bytes = 0;
  // Of one frame that arrived: all that the core did. In user space: of the switch's thread alone,
  // without what received the frames for it.
  double ns = 0.0;
  double arrived_share = 0.0;  // of the frames sent
  double of_bridge = 0.0;      // frames a second, against the bridge's

  double packets_per_second() const { return 1e9 / ns; }
};

std::vector<ForwardingSpeed> measure_forwarding(const ForwardingOptions& options);

struct FloodOutcome {
  double link_mbit = 0.0;
  double garbage_of_link = 0.0;  // what was offered
  double spillway_of_link = 0.0;
  double spillway_arrived_share = 0.0;
  double spillway_whole_share = 0.0;  // untrimmed
  double admitted_of_link = 0.0;      // what the port let through, by the clock
  double arrived_of_sent = 0.0;       // of the frames it sent on
};

FloodOutcome measure_flood(const ForwardingOptions& options);

}  // namespace spillway::cli
