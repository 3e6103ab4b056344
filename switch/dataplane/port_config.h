// SPDX-License-Identifier: Apache-2.0
//
// The config of an output port: defaults for each kind of port, and validation. The port's code
// (admission.h) trusts a config that validate() accepts, so every config from outside must pass it
// first. Plain functions, for any thread.
#pragma once

#include <string_view>

#include "base/status.h"
#include "switch/dataplane/port.h"

namespace spillway::dataplane {

// Defaults for 100 Gb/s ports a few microseconds apart:
//   drop-tail  one queue of 1 MiB
//   ecn        the same, marking from 100 kB (a step, as in DCTCP)
//   trim       72 KB per queue (eight 9,000-byte frames, as in NDP), 90 % of the link for control
//   spillway   128 KiB per priority, early drop from a quarter, marking from an eighth, half of the
//              link for control
spillway_port_config default_port_config(spillway_port_mode mode);

// The message names the first mistake.
base::Status validate(const spillway_port_config& config);

std::string_view port_mode_name(spillway_port_mode mode);
std::string_view reason_name(spillway_reason reason);

void add_counters(const spillway_port_counters& from, spillway_port_counters& to);

}  // namespace spillway::dataplane
