// SPDX-License-Identifier: Apache-2.0
//
// What a communicator's packets travel over (docs/adr/0015-tcp-carrier.md), the same at all ranks:
//
//   SPILLWAY_CARRIER=udp|tcp|auto    SPILLWAY_TCP_CONGESTION=cubic|bbr|...
//
// Over TCP packets are as long as the format allows whatever the MTU, nothing is cut, and what the
// exchange does for the network's sake (pacing, paths, early reports) is off. Pure; any thread.
#pragma once

#include <span>
#include <string_view>

#include "base/environment.h"
#include "base/status.h"
#include "net/transport_driver.h"
#include "runtime/preparation.h"
#include "runtime/rank_card.h"

namespace spillway::runtime {

// The last thing to be prepared: it has the last word.
base::Status take_carrier(const base::Environment& environment, Preparation& preparation);

// All must say the same.
base::Status check_carriers(std::span<const RankCard> cards);

// "UDP", "TCP", "UDP or TCP"
std::string_view protocols_of(net::Carrier carrier);

}  // namespace spillway::runtime
