// SPDX-License-Identifier: Apache-2.0
//
// TCP settings for the baseline: TCP as a data centre would run it. The model (sim/tcp) counts in
// segments and leaves out costs of real TCP that do not matter to the comparison. Its errors favour
// TCP: every flow is an open connection, hosts need no processor time, and a lost retransmission is
// noticed as quickly as a lost segment.
//
// Defaults: an initial window of 10 segments, selective acknowledgements, one acknowledgement per
// segment, rto_min of 10 ms. Two settings decide how TCP fares in an incast and must be stated
// beside every number: rto_min (Linux: 200 ms, data centres: 1 to 10 ms) and tail loss probes (RFC
// 8985; on in Linux, off here). Without probes a lost tail costs a whole RTO.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/units.h"

namespace spillway::scenario {

enum class TcpKind : std::uint8_t { kNewReno, kDctcp };

struct TcpConfig {
  TcpKind kind = TcpKind::kDctcp;
  bool selective_acks = true;     // off: three duplicate ACKs and partial ACKs (RFC 6582)
  bool tail_loss_probe = false;   // RFC 8985, section 7; needs selective_acks
  bool priority_by_flow = false;  // off: DSCP 0 for all, flows take turns
  std::uint8_t segments_per_ack = 1;
  std::uint32_t payload_bytes = 1460;  // of a full segment
  std::uint32_t initial_window = 10;   // segments
  base::Bytes window_max = base::bytes(4 * 1024 * 1024);
  base::Duration rto_min = base::milliseconds(10);
  base::Duration rto_max = base::seconds(60);
  base::Duration ack_delay_max = base::microseconds(500);  // where segments_per_ack > 1
  double dctcp_gain = 1.0 / 16.0;

  // Before the first round-trip sample. Real stacks begin at a second.
  base::Duration rto_initial() const { return std::max(rto_min, base::milliseconds(1)); }
  std::uint32_t window_max_segments() const {
    return std::max<std::uint32_t>(initial_window,
                                   static_cast<std::uint32_t>(window_max.count() / payload_bytes));
  }
};

}  // namespace spillway::scenario
