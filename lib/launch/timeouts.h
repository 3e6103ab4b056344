// SPDX-License-Identifier: Apache-2.0
//
// How long a rank waits for its peers to join and to answer, and what the error says about a silent
// peer. The caller's values override the environment, which overrides the defaults.
//
//   SPILLWAY_PEER_TIMEOUT        seconds until a peer that owes an answer counts as dead
//   SPILLWAY_RENDEZVOUS_TIMEOUT  seconds to wait for all ranks to join
//
// Both may have fractions. Ranks need not agree on them.
//
// A silent rank may be dead, may have got no processor, or may never have been reachable. The user
// can tell these apart only with the address and the right variables, so the advice names them.
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>

#include "base/environment.h"
#include "base/status.h"
#include "base/units.h"
#include "net/address.h"

namespace spillway::runtime {

struct Timeouts {
  base::Duration peer{};
  base::Duration rendezvous{};
};

struct WantedTimeouts {
  std::optional<base::Duration> peer;
  std::optional<base::Duration> rendezvous;
};

// An invalid variable is an error even if the caller overrides it.
base::Result<Timeouts> timeouts_from(const base::Environment& environment,
                                     const WantedTimeouts& wanted);

struct SilentPeer {
  net::SocketAddress address{};
  // True if an operation has succeeded, so packets do travel between ranks.
  bool has_worked = false;
  std::string protocol = "UDP";  // under its packets
};

// `failure` with the advice appended.
base::Status with_advice(const base::Status& failure, const SilentPeer& peer);

}  // namespace spillway::runtime
