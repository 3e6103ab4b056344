// SPDX-License-Identifier: Apache-2.0
//
// What packets travel over, and the names for SPILLWAY_CARRIER. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/environment.h"
#include "base/status.h"
#include "net/tcp_socket.h"

namespace spillway::net {

enum class Carrier : std::uint8_t {
  kUdp,
  kTcp,
  kAuto,  // UDP, or TCP to peers that UDP does not reach
};

std::string_view name_of(Carrier carrier);
std::optional<Carrier> carrier_named(std::string_view name);

// From SPILLWAY_CARRIER and SPILLWAY_TCP_CONGESTION.
base::Result<Carrier> carrier_from(const base::Environment& environment);
TcpOptions tcp_options_from(const base::Environment& environment);

}  // namespace spillway::net
