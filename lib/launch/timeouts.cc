// SPDX-License-Identifier: Apache-2.0
#include "launch/timeouts.h"

#include <fmt/format.h>

namespace spillway::runtime {

base::Result<Timeouts> timeouts_from(const base::Environment& environment,
                                     const WantedTimeouts& wanted) {
  const auto peer = environment.seconds("SPILLWAY_PEER_TIMEOUT");
  if (!peer.ok()) {
    return peer.status();
  }
  const auto rendezvous = environment.seconds("SPILLWAY_RENDEZVOUS_TIMEOUT");
  if (!rendezvous.ok()) {
    return rendezvous.status();
  }
  return Timeouts{.peer = wanted.peer.value_or(*peer),
                  .rendezvous = wanted.rendezvous.value_or(*rendezvous)};
}

base::Status with_advice(const base::Status& failure, const SilentPeer& peer) {
  constexpr std::string_view kStarved =
      "if it lives but waits for a processor, set SPILLWAY_PEER_TIMEOUT to more seconds";
  const std::string unreached = fmt::format(
      "nothing has worked yet, so see that {} goes from here to {} and back "
      "(SPILLWAY_SOCKET_IFNAME chooses interfaces); ",
      peer.protocol, peer.address.to_string());
  return {failure.code(),
          fmt::format("{}; {}{}", failure.message(), peer.has_worked ? "" : unreached, kStarved)};
}

}  // namespace spillway::runtime
