// SPDX-License-Identifier: Apache-2.0
//
// Packets per second that one core puts through an adding switch in the kernel, beside data packets
// of the same size that it only forwards. Both arrive over a veth, as from a host in the lab;
// making and delivering them is in both times. Of seven parts, one claims a slot, five are added,
// and the last leaves with the sum. Throws CommandError.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/forwarding/speed.h"

namespace spillway::bench {

struct SumForwarding {
  std::string forwarder;
  bool adds = false;
  double ns = 0.0;           // per packet that came in
  double taken_share = 0.0;  // packets forwarded (or claimed, added, emitted) per sent one

  double packets_per_second() const { return 1e9 / ns; }
};

std::vector<SumForwarding> measure_sum_forwarding(const ForwardingOptions& options);

}  // namespace spillway::bench
