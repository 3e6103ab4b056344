// SPDX-License-Identifier: Apache-2.0
//
// Whether a peer answers, how long that takes, and how far its clock is from ours. The offset is
// computed as in NTP, from the fastest echo; its error is at most half of the round trip. Spillway
// does not need synchronised clocks, but people who read logs do.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/peer/peer_link.h"

namespace spillway::doctor {

struct EchoSample {
  base::Duration round_trip;  // without the listener's own time
  base::Duration offset;      // the listener's clock minus ours
};

EchoSample sample_of(const PeerAnswer& answer);

struct RoundTrips {
  base::Duration smallest{};
  base::Duration median{};
  base::Duration offset{};  // from the fastest echo
  std::size_t lost = 0;
  std::size_t asked = 0;
};

// Returns nothing if no answer came.
std::optional<RoundTrips> summarise(std::vector<EchoSample> samples, std::size_t asked);
std::optional<RoundTrips> measure_round_trips(PeerLink& link);

Findings check_round_trips(const RoundTrips& trips);
// Why nothing answers. `error`: an errno; 0 if none was reported.
Finding unreachable(const net::SocketAddress& peer, int error);

}  // namespace spillway::doctor
