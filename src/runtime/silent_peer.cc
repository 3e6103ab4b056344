// SPDX-License-Identifier: Apache-2.0
#include "runtime/silent_peer.h"

#include <fmt/format.h>

namespace spillway::runtime {

base::Status with_advice(const base::Status& failure, const SilentPeer& peer) {
  constexpr std::string_view kStarved =
      "if it lives but waits for a processor, set SPILLWAY_PEER_TIMEOUT to more seconds";
  const std::string unreached = fmt::format(
      "nothing has worked yet, so see that UDP goes from here to {} and back "
      "(SPILLWAY_SOCKET_IFNAME chooses interfaces); ",
      peer.address.to_string());
  return {failure.code(),
          fmt::format("{}; {}{}", failure.message(), peer.has_worked ? "" : unreached, kStarved)};
}

}  // namespace spillway::runtime
