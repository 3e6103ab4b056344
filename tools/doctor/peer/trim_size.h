// SPDX-License-Identifier: Apache-2.0
//
// The size to which the switches on the path trim packets, found by filling a queue. It compares
// the listener's counts of a burst with the packets sent and with the ranks' setting (the variable
// SPILLWAY_TRIM_BYTES). Sizes are those of frames from the Ethernet header on, as switches see
// them. A tag removed on the way makes a difference of 4 bytes. The judgement is pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/peer/burst.h"
#include "tools/doctor/peer/peer_link.h"
#include "tools/doctor/peer/probe_packet.h"

namespace spillway::doctor {

struct BurstOutcome {
  BurstSent sent;
  ArrivalSummary arrived;
  bool ipv6 = false;
};

struct TrimOutcome {
  std::uint64_t whole = 0;
  std::uint64_t trimmed = 0;  // with corrected lengths, so that sockets receive them
  std::uint64_t lost = 0;     // neither arrived nor stale
  unsigned frame_bytes = 0;   // of most trimmed frames; 0: none
  unsigned smallest = 0;
  unsigned largest = 0;
  std::uint8_t dscp = 0;  // of most trimmed packets
};

TrimOutcome trims_of(const BurstOutcome& burst);

// `told_bytes`: the value of SPILLWAY_TRIM_BYTES, if set.
Findings check_trims(const BurstOutcome& burst, std::optional<unsigned> told_bytes);

struct TrimOptions {
  base::BitRate rate;
  base::Duration length;
};

// Returns nothing if the listener did not answer. `payload_limit`: as for a burst.
std::optional<BurstOutcome> provoke_trims(PeerLink& link, std::size_t payload_limit,
                                          const TrimOptions& options);

}  // namespace spillway::doctor
