// SPDX-License-Identifier: Apache-2.0
//
// To which size the switches on the path cut packets, found by filling a queue: what a listener
// counted of a burst, compared with what was sent and with what ranks are told (the variable
// SPILLWAY_TRIM_BYTES). Sizes are those of frames from the Ethernet header on, as switches have
// them; a tag that is taken off on the way makes 4 bytes of difference. The judgement is pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"
#include "doctor/finding.h"
#include "doctor/peer/burst.h"
#include "doctor/peer/peer_link.h"
#include "doctor/peer/probe_packet.h"

namespace spillway::doctor {

struct BurstOutcome {
  BurstSent sent;
  ArrivalSummary arrived;
  bool ipv6 = false;
};

struct TrimOutcome {
  std::uint64_t whole = 0;
  std::uint64_t trimmed = 0;  // and corrected, so that sockets get them
  std::uint64_t lost = 0;     // neither, and not stale
  unsigned frame_bytes = 0;   // of most trimmed frames; 0: there were none
  unsigned smallest = 0;
  unsigned largest = 0;
  std::uint8_t dscp = 0;  // of most trimmed packets
};

TrimOutcome trims_of(const BurstOutcome& burst);

// `told_bytes`: what SPILLWAY_TRIM_BYTES says, if it is set.
Findings check_trims(const BurstOutcome& burst, std::optional<unsigned> told_bytes);

struct TrimOptions {
  base::BitRate rate;
  base::Duration length;
};

// Nothing where the listener did not answer. `payload_limit` as for a burst.
std::optional<BurstOutcome> provoke_trims(PeerLink& link, std::size_t payload_limit,
                                          const TrimOptions& options);

}  // namespace spillway::doctor
