// SPDX-License-Identifier: Apache-2.0
//
// How long a rank waits for the others, to come and to give a sign of life, and what is said of one
// that was not heard. What the caller says goes before the environment, that before the defaults.
//
//   SPILLWAY_PEER_TIMEOUT        seconds: who is silent for so long while something is due is dead
//   SPILLWAY_RENDEZVOUS_TIMEOUT  seconds: how long to wait for all ranks to come
//
// Both may have fractions. Ranks need not agree on them.
//
// A rank from which nothing came may have died; it may also live and have been given no processor,
// or never have been within reach. Whoever reads the error cannot tell these apart without the
// address and the variables that matter, so the advice names them.
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

// A variable that makes no sense is an error, also where the caller goes before it.
base::Result<Timeouts> timeouts_from(const base::Environment& environment,
                                     const WantedTimeouts& wanted);

struct SilentPeer {
  net::SocketAddress address{};
  // Some operation has ended well, so packets do go from rank to rank.
  bool has_worked = false;
  std::string protocol = "UDP";  // that packets are sent over
};

// `failure` with a sentence added.
base::Status with_advice(const base::Status& failure, const SilentPeer& peer);

}  // namespace spillway::runtime
