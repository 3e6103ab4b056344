// SPDX-License-Identifier: Apache-2.0
//
// How long a rank waits for the others: to come, and to give a sign of life. What the caller says
// goes before the environment, that before the defaults.
//
//   SPILLWAY_PEER_TIMEOUT        seconds: who is silent for so long while something is due is dead
//   SPILLWAY_RENDEZVOUS_TIMEOUT  seconds: how long to wait for all ranks to come
//
// Both may have fractions. Ranks need not agree on them. Pure; any thread.
#pragma once

#include <optional>

#include "base/status.h"
#include "base/units.h"
#include "runtime/launch_environment.h"

namespace spillway::runtime {

// With the time to tell the others, a dead rank is named everywhere within two seconds.
inline constexpr base::Duration kPeerTimeout = base::milliseconds(1400);
inline constexpr base::Duration kRendezvousPatience = base::seconds(60);

// What a variable may say. Below, a rank that a busy machine does not let run for a moment is dead.
inline constexpr base::Duration kLeastTimeout = base::milliseconds(100);
inline constexpr base::Duration kMostTimeout = base::seconds(86'400);

struct Timeouts {
  base::Duration peer = kPeerTimeout;
  base::Duration rendezvous = kRendezvousPatience;
};

struct WantedTimeouts {
  std::optional<base::Duration> peer;
  std::optional<base::Duration> rendezvous;
};

// A variable that makes no sense is an error, also where the caller goes before it.
base::Result<Timeouts> timeouts_from(const Environment& environment, const WantedTimeouts& wanted);

}  // namespace spillway::runtime
