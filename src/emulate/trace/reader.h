// SPDX-License-Identifier: Apache-2.0
//
// Traces by where they are: files, their format, their ranks.
//
// A place is a file, a folder, or a prefix: PREFIX.0.et, PREFIX.1.et and so on, as tools write
// them; also .json, and each with .gz behind it. Formats are told by the name's end (.et Chakra,
// .json Chakra's or PyTorch's JSON, .goal GOAL), else by how the text begins.
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

enum class TraceFormat : std::uint8_t { kChakra, kJson, kGoal, kSimai };

struct TraceFile {
  std::string path;
  std::uint32_t rank = 0;  // by its name; 0 where it has none, or is the only one
};

// In the order of their ranks. Two files of one rank, and folders with several traces, are errors.
base::Result<std::vector<TraceFile>> find_trace_files(const std::string& place);

TraceFormat format_of(const std::string& name, std::string_view beginning);
base::Status read_trace(TraceFormat format, ByteSource& source, NodeSink& sink);
// Messages begin with the path.
base::Status read_trace_file(const std::string& path, NodeSink& sink);

base::Result<World> read_world(const std::string& place, GraphOptions options);

}  // namespace spillway::emulate
