// SPDX-License-Identifier: Apache-2.0
//
// A TCP port at `address` that is free now, for a program that cannot be handed a socket. Somebody
// may take it before that program does, which then says so. Throws CommandError.
#pragma once

#include <cstdint>

#include "net/address.h"

namespace spillway::cli {

std::uint16_t free_tcp_port(const net::SocketAddress& address);

}  // namespace spillway::cli
