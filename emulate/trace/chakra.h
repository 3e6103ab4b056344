// SPDX-License-Identifier: Apache-2.0
//
// Chakra execution traces, version 1.0 (mlcommons/chakra, et_def.proto): one file per rank, a
// stream of (varint length, message), GlobalMetadata first, then Nodes.
//
//   Node  id 1, name 2, type 3, ctrl_deps 4, data_deps 5, start_time_micros 6, duration_micros 7,
//         inputs 8, outputs 9, attr 10
//   attr  name 1, doc_string 2, then one of 15 value types, numbers 3 to 32, lists at even numbers
//
// The reader is liberal: dependencies may be packed or not, integers may use any integer arm, every
// attribute may be absent, and anything unknown is skipped. Malformed bytes are an error that names
// the byte.
//
// Attributes read and written: is_cpu_op, comm_type, comm_size, comm_src, comm_dst, comm_tag,
// pg_name. Our own, which other readers skip: comm_root, duration_nanos (if a duration is not whole
// microseconds), and in the metadata rank, world_size and process_groups. The latter is a JSON text
// as PyTorch writes it: [{"pg_name": "1", "ranks": [0, 1]}, ...].
//
// Limits: messages of kMaxMessageBytes.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.h"
#include "emulate/trace/byte_source.h"
#include "emulate/trace/node.h"
#include "observe/chakra/encode.h"

namespace spillway::emulate {

inline constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 20;

base::Status read_chakra(ByteSource& source, NodeSink& sink);

// Writes one rank's file, gzip if the path ends with .gz. finish() tells whether all of it was
// written; destroying the writer without it leaves a truncated file.
class ChakraWriter final : public NodeSink {
 public:
  static base::Result<std::unique_ptr<ChakraWriter>> create(const std::string& path);
  ~ChakraWriter() override;

  base::Status on_rank(const RankInfo& info) override;  // once, first
  base::Status on_node(const Node& node) override;
  base::Status finish();

 private:
  class File;
  explicit ChakraWriter(std::unique_ptr<File> file);

  std::unique_ptr<File> file_;
  chakra::Encoder encoder_;
  std::string bytes_;
};

// Parses [{"pg_name": ..., "ranks": [...]}, ...]; any other text has no groups.
std::vector<GroupInfo> parse_process_groups(std::string_view json_text);

}  // namespace spillway::emulate
