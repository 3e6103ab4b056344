// SPDX-License-Identifier: Apache-2.0
//
// Puts a datagram of the real transport into a simulated packet: its bytes, and the fields that
// switches read. The caller fills in destination, label and stack.
#pragma once

#include "base/bytes.h"
#include "sim/packet.h"
#include "transport/route.h"

namespace spillway::sim {

void fill_packet(const transport::Route& route, base::ByteView datagram, PacketPool& pool,
                 Packet& packet);

}  // namespace spillway::sim
