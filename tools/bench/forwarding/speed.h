// SPDX-License-Identifier: Apache-2.0
//
// Speed of forwarding frames from one port to another on one core (kernel/live_switch.h): through
// the switch in the kernel at XDP and at tc, a Linux bridge, and the switch in user space. Only
// frames that arrive behind the second port count. Queues stay empty: this measures the cost of
// forwarding alone. Throws CommandError.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::bench {

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

}  // namespace spillway::bench
