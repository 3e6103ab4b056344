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

// What a file says about itself and its rank.
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

}  // namespace spillway::chakra
