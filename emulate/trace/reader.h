// SPDX-License-Identifier: Apache-2.0
//
// Finds traces by place: their files, formats and ranks.
//
// A place is a file, a folder, or a prefix of PREFIX.0.et, PREFIX.1.et and so on, as tools write
// them. The ending may also be .json, and each may be followed by .gz. The format follows from the
// name's ending (.et Chakra, .json Chakra's or PyTorch's JSON, .goal GOAL), else from the beginning
// of the text.
//
// The nodes of a gzip file have a limit of their own, so that a small file cannot fill the memory:
// after the first kFreeGraphBytes, kMaxGraphRatio bytes per byte of the file. A node counts
// kNodeCharge bytes and a dependency kDependencyCharge, about what a graph and its lint keep of
// them; a line of a GOAL file counts as two nodes while it is read. Real and synthetic traces need
// 18 to 23 bytes per byte. Nodes that differ in nothing but their ids need about 90. Only files
// that repeat nodes or dependencies need more.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "emulate/trace/byte_source.h"
#include "emulate/trace/graph.h"
#include "emulate/trace/node.h"

namespace spillway::emulate {

inline constexpr std::uint64_t kNodeCharge = 128;
inline constexpr std::uint64_t kDependencyCharge = 16;
inline constexpr std::uint64_t kFreeGraphBytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kMaxGraphRatio = 512;

enum class TraceFormat : std::uint8_t { kChakra, kJson, kGoal, kSimai };

struct TraceFile {
  std::string path;
  std::uint32_t rank = 0;  // from its name; 0 if it has no number or is the only file
};

// Ordered by rank. Two files of one rank, or a folder with several traces, are an error.
base::Result<std::vector<TraceFile>> find_trace_files(const std::string& place);

TraceFormat format_of(const std::string& name, std::string_view beginning);
base::Status read_trace(TraceFormat format, ByteSource& source, NodeSink& sink);
// Error messages begin with the path.
base::Status read_trace_file(const std::string& path, NodeSink& sink);

base::Result<World> read_world(const std::string& place, GraphOptions options);

}  // namespace spillway::emulate
