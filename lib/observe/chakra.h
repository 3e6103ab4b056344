// SPDX-License-Identifier: Apache-2.0
//
// An execution trace as its readers hand it out: what one rank did, node by node. A node computes,
// takes part in a collective, sends or receives. It runs once all nodes it depends on have run. Ids
// come from the file, are unique within a rank and have any order. Dependencies may name later
// nodes.
//
// Values that a file does not give are absent here, never guessed. `data_deps` decide when a node
// runs. `control_deps` say which node called which; in PyTorch traces they form a tree that
// contradicts the order of the data. They count only if the user asks for it (ADR 20).
//
// Readers (emulate/trace) call a sink: on_rank() before the nodes of each rank, then on_node() for
// each node. The node object is reused for the next call. If the sink returns an error, reading
// stops.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"

namespace spillway::chakra {

enum class NodeKind : std::uint8_t { kOther, kCompute, kSend, kReceive, kCollective };
const char* node_kind_name(NodeKind kind);

// Numbered as in Chakra files.
enum class CollectiveKind : std::uint8_t {
  kAllReduce,
  kReduce,
  kAllGather,
  kGather,
  kScatter,
  kBroadcast,
  kAllToAll,
  kReduceScatter,
  kReduceScatterBlock,
  kBarrier,
};
inline constexpr unsigned kCollectiveKinds = 10;
const char* collective_kind_name(CollectiveKind kind);
// Accepts the usual spellings: "all_reduce", "AllReduce", "_allgather_base", "nccl:all_reduce".
std::optional<CollectiveKind> parse_collective_kind(std::string_view text);

struct Node {
  std::uint64_t id = 0;
  std::string name;
  NodeKind kind = NodeKind::kOther;
  // For a collective, the rank's input: its own part for an all-gather, the whole for a
  // reduce-scatter or all-to-all. For a send or receive, the message.
  std::optional<std::uint64_t> bytes;
  std::optional<CollectiveKind> collective;
  std::string group;  // empty: all ranks
  std::uint32_t root = 0;
  std::optional<std::uint32_t> peer;  // the other end of a send or receive
  std::int32_t tag = 0;
  bool on_host = false;  // runs on the CPU, beside the accelerator's work
  base::Duration start{};
  base::Duration duration{};
  std::vector<std::uint64_t> data_deps;
  std::vector<std::uint64_t> control_deps;

  // Resets every field; keeps allocated memory.
  void clear();
};

struct GroupInfo {
  std::string name;
  std::vector<std::uint32_t> ranks;
};

// A file's statements about itself and its rank.
struct RankInfo {
  std::string version;
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> world;
  std::vector<GroupInfo> groups;
};

class NodeSink {
 public:
  virtual ~NodeSink() = default;
  virtual base::Status on_rank(const RankInfo& info) = 0;
  virtual base::Status on_node(const Node& node) = 0;
};

// Upper limit of ranks in a trace.
inline constexpr std::uint32_t kMaxTraceRanks = 65'536;
// Longer durations are capped to this, so that sums of durations do not overflow.
inline constexpr base::Duration kMaxNodeDuration = base::seconds(1'000'000);
constexpr base::Duration bounded_duration(std::int64_t nanoseconds) {
  const std::int64_t most = kMaxNodeDuration.count();
  return base::nanoseconds(nanoseconds < 0 ? 0 : nanoseconds > most ? most : nanoseconds);
}
// A file may hold any count of microseconds.
constexpr base::Duration bounded_microseconds(std::uint64_t count) {
  const std::uint64_t most = static_cast<std::uint64_t>(kMaxNodeDuration.count()) / 1000;
  return base::microseconds(static_cast<std::int64_t>(count > most ? most : count));
}

// Encodes nodes and metadata as the bytes of a Chakra file (version 1.0): each message follows its
// length. emulate/trace/chakra.cc, which reads them, lists the attributes.
//
// Appends to text that the caller owns; no I/O. An encoder has scratch memory: use one per thread.

class Encoder {
 public:
  // Call this once, before any node.
  void append(const RankInfo& info, std::string& to);
  void append(const Node& node, std::string& to);

 private:
  void append_framed(std::string& to) const;

  std::string message_;
  std::string scratch_;
};

// [{"pg_name": ..., "ranks": [...]}, ...]
std::string process_groups_json(const std::vector<GroupInfo>& groups);

// The part of Protocol Buffers' wire format that Chakra files need (proto3; no groups).
//
// ProtoReader walks the fields of one message and never reads outside its bytes. At the first
// malformed field, next() returns false from then on, and ok() is false. Readers take the fields
// they know and skip the rest. append_*() write fields.
//
//   key = varint(number << 3 | type)   type 0 varint, 1 eight bytes, 2 length and bytes, 5 four

enum class WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct ProtoField {
  std::uint32_t number = 0;
  WireType type = WireType::kVarint;
  std::uint64_t value = 0;  // for varint and fixed-size fields
  base::ByteView bytes;

  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

// Reads at most ten bytes. Returns false if the bytes end early or the value exceeds 64 bits.
bool read_varint(base::ByteView& bytes, std::uint64_t& value);

class ProtoReader {
 public:
  explicit ProtoReader(base::ByteView bytes) : bytes_(bytes) {}

  bool next(ProtoField& field);
  bool ok() const { return ok_; }

 private:
  bool fail() {
    ok_ = false;
    return false;
  }

  base::ByteView bytes_;
  bool ok_ = true;
};

constexpr std::uint64_t zigzag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
constexpr std::int64_t unzigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

void append_varint(std::string& to, std::uint64_t value);
void append_varint_field(std::string& to, std::uint32_t number, std::uint64_t value);
void append_bytes_field(std::string& to, std::uint32_t number, std::string_view bytes);

}  // namespace spillway::chakra
