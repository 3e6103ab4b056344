// SPDX-License-Identifier: Apache-2.0
//
// Topologies from text: one item per line, `#` begins a comment.
//
//   switch NAME
//   host NAME
//   link A B rate=100gbit delay=1us [buffer=256k]
//
// Names must be declared before a link uses them; hosts are numbered in order of appearance.
// `buffer` limits each data queue of the link's switch ports. Errors name the line.
#pragma once

#include <string_view>

#include "base/status.h"
#include "sim/scenario/topology.h"

namespace spillway::scenario {

base::Result<Topology> parse_topology(std::string_view text);

}  // namespace spillway::scenario
