// SPDX-License-Identifier: Apache-2.0
//
// A run as a page that opens without a network: a row per rank, a bar per node, the critical path
// in a colour of its own and as a table. Of long runs the longest bars are drawn, kMaxBars of them,
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

// A node's name and kind, for tables: "all-reduce of 4096 bytes 'grad'".
std::string node_text(const World& world, NodePlace place);

}  // namespace spillway::emulate
