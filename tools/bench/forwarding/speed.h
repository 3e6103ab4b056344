// SPDX-License-Identifier: Apache-2.0
//
// Speed of switches on one core: of forwarding frames, of adding sums, and under garbage. Throws
// CommandError.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::bench {

// ------------------------------------------------------------------ frames

// Speed of forwarding frames from one port to another on one core
// (switch/kernel/measure/live_switch.h): through the switch in the kernel at XDP and at tc, a Linux
// bridge, and the switch in user space. Only frames that arrive behind the second port count.
// Queues stay empty: this measures the cost of forwarding alone. Throws CommandError.

struct ForwardingOptions {
  unsigned rounds = 5;  // interleaved; the median counts
  std::uint32_t frames = 300'000;
  unsigned cpu = 0;
};

struct ForwardingSpeed {
  std::string forwarder;
  std::uint32_t frame_bytes = 0;
  // Per frame that arrived: all work of the core. In user space: CPU time of the switch's thread
  // only, without the work that delivered frames to it.
  double ns = 0.0;
  double arrived_share = 0.0;  // of the frames sent
  double of_bridge = 0.0;      // frames per second, relative to the bridge's

  double packets_per_second() const { return 1e9 / ns; }
};

std::vector<ForwardingSpeed> measure_forwarding(const ForwardingOptions& options);

// ------------------------------------------------------------------ sums

// Packets per second that one core puts through an adding switch in the kernel, beside data packets
// of the same size that it only forwards. Both arrive over a veth, as from a host in the lab;
// making and delivering them is in both times. One of seven parts claims a slot, five are added,
// and the last leaves with the sum. Throws CommandError.

struct SumForwarding {
  std::string forwarder;
  bool adds = false;
  double ns = 0.0;           // per packet that came in
  double taken_share = 0.0;  // packets forwarded (or claimed, added, emitted) per sent one

  double packets_per_second() const { return 1e9 / ns; }
};

std::vector<SumForwarding> measure_sum_forwarding(const ForwardingOptions& options);

// ------------------------------------------------------------------ garbage

// Measures whether the switch at XDP still works under ten times as much garbage as its port
// carries (bench/forwarding/rig.h). Throws CommandError.

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
