// SPDX-License-Identifier: Apache-2.0
//
// How fast frames go from one port to another on one core (kernel/live_switch.h): through the
// switch in the kernel at XDP and at tc, a Linux bridge, and the switch in user space. What counts
// is what arrived behind the second port. Queues are empty throughout: this is the cost of passing.
// Throws CommandError.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::bench {

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

}  // namespace spillway::bench
