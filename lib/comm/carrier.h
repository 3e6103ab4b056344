// SPDX-License-Identifier: Apache-2.0
//
// Selects the protocol under a communicator's packets (docs/adr/0015-tcp-carrier.md). All ranks
// must select the same:
//
//   SPILLWAY_CARRIER=udp|tcp|auto    SPILLWAY_TCP_CONGESTION=cubic|bbr|...
//
// Over TCP, packets have the largest size of the format whatever the MTU, and no switch trims them.
// Pacing, multiple paths and early reports are off. Pure functions; any thread.
#pragma once

#include <span>
#include <string_view>

#include "base/environment.h"
#include "base/status.h"
#include "comm/preparation.h"
#include "comm/rank_card.h"
#include "net/transport_driver.h"

namespace spillway::runtime {

// Call this last: for TCP it overrides the MTU, trim size, send rate and exchange settings.
base::Status take_carrier(const base::Environment& environment, Preparation& preparation);

// Fails unless all ranks selected the same carrier.
base::Status check_carriers(std::span<const RankCard> cards);

// "UDP", "TCP", "UDP or TCP"
std::string_view protocols_of(net::Carrier carrier);

}  // namespace spillway::runtime
