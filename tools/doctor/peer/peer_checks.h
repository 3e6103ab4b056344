// SPDX-License-Identifier: Apache-2.0
//
// All checks of the path to a listener, in the order in which they are shown: whether it answers,
// how long packets may be, how DSCP and ECN arrive, and what switches do when queues are full. Ends
// early if nothing answers. Takes the burst's length and a fraction of a second, more if packets
// are lost.
#pragma once

#include <optional>
#include <string_view>

#include "base/status.h"
#include "net/address.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/peer/trim_size.h"

namespace spillway::doctor {

// Accepts "10.0.0.1:7078", "[fd00::1]:7078", "host7:7078", or any of them without the port.
base::Result<net::SocketAddress> resolve_peer(std::string_view text);

Findings check_path_to(const net::SocketAddress& peer, const TrimOptions& trims,
                       std::optional<unsigned> told_trim_bytes);

}  // namespace spillway::doctor
