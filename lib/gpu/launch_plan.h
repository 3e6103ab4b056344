// SPDX-License-Identifier: Apache-2.0
//
// A message as kernel launches: how its planes lie in memory, and which blocks work on which rows.
// All full rows of a range form one launch; a last row of another length needs a second one.
//
// A block holds a tile in shared memory: one row, or several short rows that together have
// 2^kMinTileLog2 coordinates. Each thread handles 32 of them. Rows of 2^13 need 40 KB of shared
// memory, which every device has. Rows of 2^15 need 150 KB, which some lack; Device::launch() then
// fails.
//
// Pure values; any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "gpu/kernels/arguments.h"
#include "packetize/packet_plan.h"

namespace spillway::gpu {

inline constexpr unsigned kMinTileLog2 = 12;
inline constexpr unsigned kMaxThreads = 1024;

struct Launch {
  RowRange rows;
  unsigned blocks;
  unsigned threads;
  unsigned shared_bytes;
};

MessageShape shape_of(const packetize::PacketPlan& plan);

// Launches for rows [first, first + count) of a layout; empty if `count` is 0.
std::vector<Launch> launches_of(const codec::RowLayout& layout, std::size_t first,
                                std::size_t count);

// Tables of the codec that the kernels read.
CodeTables make_code_tables();

}  // namespace spillway::gpu
