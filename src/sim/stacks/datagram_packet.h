// SPDX-License-Identifier: Apache-2.0
//
// A datagram of the shipped transport as a packet of the simulated network: its bytes, and what
// switches look at. Whom it is for, its label and stack are the caller's to fill in.
#pragma once

#include "base/bytes.h"
#include "sim/packet.h"
#include "transport/route.h"

namespace spillway::sim {

void fill_packet(const transport::Route& route, base::ByteView datagram, PacketPool& pool,
                 Packet& packet);

}  // namespace spillway::sim
