// SPDX-License-Identifier: Apache-2.0
//
// Topologies from text: one item per line, `#` begins a comment.
//
//   switch NAME
//   host NAME
//   link A B rate=100gbit delay=1us [buffer=256k]
//
// Names are declared before a link uses them; hosts are numbered in the order they appear. `buffer`
// is the limit of each data queue of the link's switch ports. Errors name the line.
#pragma once

#include <string_view>

#include "base/status.h"
#include "scenario/topology.h"

namespace spillway::scenario {

base::Result<Topology> parse_topology(std::string_view text);

}  // namespace spillway::scenario
