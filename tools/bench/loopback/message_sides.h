// SPDX-License-Identifier: Apache-2.0
//
// The two sides of wire_speed.h's Spillway measurement: one keeps messages in flight for a while,
// the other receives them and compares them with what was sent.
#pragma once

#include "tools/bench/loopback/process_pair.h"
#include "tools/bench/loopback/wire_speed.h"

namespace spillway::bench {

// `extra`: the share of retransmitted packets.
SideResult send_messages(int stream, const WireSpeedOptions& options);
// `extra`: datagrams that failed their checks.
SideResult receive_messages(int stream, const WireSpeedOptions& options);

}  // namespace spillway::bench
