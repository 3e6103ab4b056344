// SPDX-License-Identifier: Apache-2.0
//
// How many packets a second one core takes through a switch in the kernel that adds, beside data
// packets of the same size that it only forwards. Both come in over a veth, as a host's do in the
// lab: what makes them and what carries them there is in both times. Of seven parts, one claims a
// slot, five are added, and the last leaves with the sum. Throws CommandError.
#pragma once

#include <string>
#include <vector>

#include "bench/forwarding/speed.h"

namespace spillway::bench {

struct SumForwarding {
  std::string forwarder;
  bool adds = false;
  double ns = 0.0;           // of one packet that came in
  double taken_share = 0.0;  // of the packets sent, those that were forwarded, or claimed, added
                             // and sent on as sums

  double packets_per_second() const { return 1e9 / ns; }
};

std::vector<SumForwarding> measure_sum_forwarding(const ForwardingOptions& options);

}  // namespace spillway::bench
