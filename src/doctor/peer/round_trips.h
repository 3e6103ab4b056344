// SPDX-License-Identifier: Apache-2.0
//
// Whether a peer answers, how long that takes, and how far its clock is from ours. The offset is
// NTP's, of the fastest echo: half of the round trip is all it can be wrong by. Spillway does not
// need clocks that agree; people who read logs do.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "doctor/finding.h"
#include "doctor/peer/peer_link.h"

namespace spillway::doctor {

struct EchoSample {
  base::Duration round_trip;  // without what the listener took
  base::Duration offset;      // of its clock over ours
};

EchoSample sample_of(const PeerAnswer& answer);

struct RoundTrips {
  base::Duration smallest{};
  base::Duration median{};
  base::Duration offset{};  // of the fastest
  std::size_t lost = 0;
  std::size_t asked = 0;
};

// Nothing where no answer came at all.
std::optional<RoundTrips> summarise(std::vector<EchoSample> samples, std::size_t asked);
std::optional<RoundTrips> measure_round_trips(PeerLink& link);

Findings check_round_trips(const RoundTrips& trips);
// Why nobody answers. `error`: an errno, 0: none came back.
Finding unreachable(const net::SocketAddress& peer, int error);

}  // namespace spillway::doctor
