// SPDX-License-Identifier: Apache-2.0
//
// The two sides of wire_speed.h's Spillway figure: one keeps messages under way for a while, the
// other takes them and checks that what arrived is what was sent.
#pragma once

#include "bench/loopback/process_pair.h"
#include "bench/loopback/wire_speed.h"

namespace spillway::bench {

// `extra`: the share of packets that were sent again.
SideResult send_messages(int stream, const WireSpeedOptions& options);
// `extra`: datagrams that failed their checks.
SideResult receive_messages(int stream, const WireSpeedOptions& options);

}  // namespace spillway::bench
