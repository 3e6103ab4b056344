// SPDX-License-Identifier: Apache-2.0
//
// Reads traces: from bytes to nodes, for every format.
//
//   ByteSource        a file or memory as bytes; unpacks gzip
//   find_trace_files  the files of a trace, by place
//   read_...          hand each rank and node to a NodeSink (GraphBuilder, ChakraWriter, JobMerger)
//   JobMerger         several jobs as one trace
//
// A place is a file, a folder, or a prefix of PREFIX.0.et, PREFIX.1.et and so on, as tools write
// them. The ending may also be .json, and each may be followed by .gz. The format follows from the
// name's ending (.et Chakra, .json Chakra's or PyTorch's JSON, .goal GOAL), else from the beginning
// of the text. Sections below define the formats.
//
// Readers accept any bytes and are fuzzed (fuzz/execution_trace.cc). One thread.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "emulate/trace/graph.h"
#include "observe/chakra.h"

namespace spillway::emulate {

// ------------------------------------------------------------------ bytes

// Limits of gzip files, so that a small file cannot fill the memory. Plain files have none.
//
// At most kMaxUnpackedBytes are unpacked. After the first kFreeUnpackedBytes, the ratio to the
// file's size is at most kMaxUnpackRatio: traces of real programs shrink to a twentieth, and only
// synthetic ones to less than a hundredth.
inline constexpr std::uint64_t kMaxUnpackedBytes = std::uint64_t{4} << 30;
inline constexpr std::uint64_t kMaxUnpackRatio = 100;
inline constexpr std::uint64_t kFreeUnpackedBytes = std::uint64_t{16} << 20;

// A node may take far more memory than the bytes that it is unpacked from, so nodes have a limit of
// their own: after the first kFreeGraphBytes, kMaxGraphRatio bytes per byte of the file. A node
// counts kNodeCharge bytes and a dependency kDependencyCharge, about what a graph and its lint
// keep. A line of a GOAL file counts as two nodes while it is read. Real and synthetic traces need
// 18 to 23 bytes per byte; nodes that differ only in their ids need about 90.
inline constexpr std::uint64_t kNodeCharge = 128;
inline constexpr std::uint64_t kDependencyCharge = 16;
inline constexpr std::uint64_t kFreeGraphBytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kMaxGraphRatio = 512;

// Bytes are read on demand; no source holds a whole file. An error is final.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills the span as far as there are bytes; fewer bytes mean the end.
  virtual base::Result<std::size_t> read(base::MutableByteView to) = 0;
  // For a gzip file: the number of its own bytes that were read so far. Unset for other sources.
  virtual std::optional<std::uint64_t> packed_bytes() const { return std::nullopt; }
};

// The error of a gzip file that exceeds a limit.
base::Status unpacks_to_more_than(const std::string& limit);

base::Result<std::unique_ptr<ByteSource>> open_file(const std::string& path);
// The bytes must outlive the source. Does not unpack gzip.
std::unique_ptr<ByteSource> memory_source(base::ByteView bytes);

// Reads the rest, for formats that need the whole text; fails if it exceeds `most` bytes.
base::Result<std::string> read_all(ByteSource& source, std::size_t most);

// ------------------------------------------------------------------ places and formats

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

// ------------------------------------------------------------------ several jobs as one trace

// Counts the ranks of a trace while it is read.
class RankCounter final : public NodeSink {
 public:
  void set_default_rank(std::uint32_t rank) { default_rank_ = rank; }
  base::Status on_rank(const RankInfo& info) override;
  base::Status on_node(const Node&) override { return {}; }
  std::uint32_t ranks() const { return ranks_; }

 private:
  std::uint32_t default_rank_ = 0;
  std::uint32_t ranks_ = 0;
};

// kConsecutive: all ranks of one job after the other. kInterleaved: rank 0 of each job, then rank 1
// of each, so that a host with as many ranks as there are jobs has one rank of each.
enum class MergeOrder : std::uint8_t { kConsecutive, kInterleaved };

// Merges several jobs into one trace, to run them on one network at the same time. A sink between a
// reader and a writer. Each job keeps its own ranks, groups and messages: "1/dp" is the second
// job's group "dp", and "1/" is the group of all its ranks.
class JobMerger final : public NodeSink {
 public:
  // `ranks`: the size of each job. `out` must outlive the merger.
  JobMerger(const std::vector<std::uint32_t>& ranks, MergeOrder order, NodeSink& out);

  // The following nodes belong to this job; `rank` is used if the trace does not name one.
  void set_source(std::size_t job, std::uint32_t rank);
  base::Status on_rank(const RankInfo& info) override;
  base::Status on_node(const Node& node) override;

 private:
  base::Result<std::uint32_t> merged_rank_of(std::uint32_t rank) const;
  std::string merged_name_of(const std::string& group) const;

  std::vector<std::vector<std::uint32_t>> merged_ranks_;  // by job and rank
  std::uint32_t world_ = 0;
  NodeSink& out_;
  std::size_t job_ = 0;
  std::uint32_t default_rank_ = 0;
  Node node_;
};

// ------------------------------------------------------------------ Chakra
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
// their offset.
//
// Attributes read and written: is_cpu_op, comm_type, comm_size, comm_src, comm_dst, comm_tag,
// pg_name. Spillway's own attributes, which other readers skip: comm_root, duration_nanos (if a
// duration is not whole microseconds), and in the metadata rank, world_size and process_groups. The
// last is a JSON text as PyTorch writes it: [{"pg_name": "1", "ranks": [0, 1]}, ...].
//
// Limit: kMaxMessageBytes per message.

inline constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 20;

base::Status read_chakra(ByteSource& source, NodeSink& sink);

// Writes one rank's file, as gzip if the path ends with .gz. finish() returns an error if the file
// could not be written completely. Destroying the writer without finish() leaves a truncated file.
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

// Parses [{"pg_name": ..., "ranks": [...]}, ...]. Any other text yields no groups.
std::vector<GroupInfo> parse_process_groups(std::string_view json_text);

// ------------------------------------------------------------------ text
//
// Traces as text: GOAL and SimAI with all ranks in one file, and JSON with one file per rank. Each
// reader holds the text in memory and passes each rank and node to a sink. Text of another form is
// an error that names the line or says what is missing.
//
// GOAL (LogGOPSim, ATLAHS):
//
//   num_ranks 2
//   rank 0 {
//   l1: calc 100                      nanoseconds
//   l2: send 10b to 1 tag 0           `cpu n` and `nic n` after a statement are skipped
//   l3: recv 10b from 1 tag 0
//   l2 requires l1                    l2 runs after l1 has ended; irequires (after l1 has begun)
//   }                                 is treated as requires
//
// A label refers to its statement, which is the node's id.
//
// SimAI (and AICB):
//
//   HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 1 ga: 1
//     all_gpus: 32 ...                one line
//   2                                 rows
//   name -1 fwd_ns COMM bytes input_grad_ns COMM bytes weight_grad_ns COMM bytes update_ns
//
// Every rank runs all rows one after another: forward from the first to the last, then back to the
// first. The communication of weight gradients overlaps with the rows that follow; the updates wait
// for all of it. Weight gradients are exchanged by the data-parallel ranks, all else by the
// tensor-parallel ranks; a suffix _EP or _DP_EP changes that. Ranks are numbered tensor-parallel
// first, then data-parallel, then by pipeline stage. The rows do not contain transfers between
// stages (pp_comm), so these are left out.
//
// JSON, in two forms that the outer member tells apart:
//
//   "workload_graph"  Chakra's JSON form: Id, Name, NodeType, is_cpu_op, runtime (microseconds),
//                     data_deps, comm_type, comm_size, comm_src, comm_dst, comm_tag
//   "nodes"           PyTorch's execution trace (schema 1.0.x), a tree of calls. Each node's caller
//                     is its control dependency. A record_param_comms node with a collective's name
//                     becomes a collective, with the bytes of its input. process_group:init nodes
//                     define the groups. Such traces have no data dependencies between calls, so
//                     communication runs in the order of the program, one after another.
//
// Limits: kMaxTextBytes, kMaxJsonBytes, kMaxTraceRanks; kMaxSimaiNodes and kMaxSimaiMembers over
// all ranks; four million JSON values per node.

inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;
inline constexpr std::size_t kMaxJsonBytes = std::size_t{1} << 30;
inline constexpr std::uint64_t kMaxSimaiNodes = 200'000'000;
inline constexpr std::uint64_t kMaxSimaiMembers = 1'500'000'000;

base::Status read_goal(std::string_view text, NodeSink& sink);
base::Status read_simai(std::string_view text, NodeSink& sink);
base::Status read_json_trace(std::string_view text, NodeSink& sink);

// ------------------------------------------------------------------ lines and words

// Views into the text; no copies.
class TextLines {
 public:
  explicit TextLines(std::string_view text) : rest_(text) {}

  // Takes the next line without its end; returns false after the last one.
  bool next(std::string_view& line) {
    if (rest_.empty()) {
      return false;
    }
    const std::size_t end = rest_.find('\n');
    line = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    ++number_;
    return true;
  }
  std::size_t number() const { return number_; }  // of the latest line, from 1

 private:
  std::string_view rest_;
  std::size_t number_ = 0;
};

// Replaces `words` by at most the first `most` words of the line.
inline void split_words(std::string_view line, std::vector<std::string_view>& words,
                        std::size_t most = 64) {
  constexpr std::string_view kSpace = " \t\r\f\v";
  words.clear();
  std::size_t from = line.find_first_not_of(kSpace);
  while (from != std::string_view::npos && words.size() < most) {
    const std::size_t end = line.find_first_of(kSpace, from);
    words.push_back(line.substr(from, end == std::string_view::npos ? end : end - from));
    from = end == std::string_view::npos ? end : line.find_first_not_of(kSpace, end);
  }
}

// Returns nothing unless the whole word is a number.
template <typename T>
std::optional<T> whole_number(std::string_view word) {
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) {
    return std::nullopt;
  }
  return value;
}

}  // namespace spillway::emulate
