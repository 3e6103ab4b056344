// SPDX-License-Identifier: Apache-2.0
//
// Shows a run as a page that opens without a network: a row per rank, a bar per node, and the
// critical path in its own colour and as a table. Of long runs it draws the kMaxBars longest bars
// and kMaxRows ranks. The run must have kept its times. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "emulate/simulate/graph_run.h"

namespace spillway::emulate {

inline constexpr std::size_t kMaxBars = 20'000;
inline constexpr std::size_t kMaxRows = 64;

std::string timeline_page(const std::string& title, const World& world,
                          const GraphRunResult& result);

// A node's kind and name, for tables: "all-reduce of 4096 bytes 'grad'".
std::string node_text(const World& world, NodePlace place);

}  // namespace spillway::emulate
