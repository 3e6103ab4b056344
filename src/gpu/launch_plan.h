// SPDX-License-Identifier: Apache-2.0
//
// A message as launches of the kernels: how its planes lie in memory, and which blocks work on
// which rows. All full rows of a range are one launch; a last row of another length is one more.
//
// A block holds a tile in shared memory: one row, or as many short ones as make 2^kMinTileLog2
// coordinates, a thread for 32 of them. Rows of 2^13 need 40 KB of shared memory, which every
// device has; those of 2^15 need 150 KB, which some have not: Device::launch() says so.
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

// Rows [first, first + count) of a layout; none for none.
std::vector<Launch> launches_of(const codec::RowLayout& layout, std::size_t first,
                                std::size_t count);

// What the codec knows and kernels look up.
CodeTables make_code_tables();

}  // namespace spillway::gpu
