// SPDX-License-Identifier: Apache-2.0
//
// An execution trace, as its readers hand it out: what one rank did, node by node. A node computes,
// takes part in a collective, sends or receives; it runs when all it depends on has. Ids are the
// file's, unique within a rank, in any order; dependencies may name nodes that come later.
//
// What a file does not say is absent here, not guessed. `data_deps` decide when a
// node runs. `control_deps` are who called whom, in traces of PyTorch a tree that does not fit the
// data's order; they count only where a user asks for it (ADR 20).
//
// Readers (emulate/trace) call a sink: on_rank() before the nodes of each rank, then on_node() for
// each, with a node that is used again for the next. A sink that returns an error ends the reading.
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
// "all_reduce", "AllReduce", "ALLREDUCE", "_allgather_base", "nccl:all_reduce": as people write it.
std::optional<CollectiveKind> parse_collective_kind(std::string_view text);

struct Node {
  std::uint64_t id = 0;
  std::string name;
  NodeKind kind = NodeKind::kOther;
  // Of a collective what a rank hands in: of an all-gather its own part, of a reduce-scatter and
  // an all-to-all the whole. Of a send and a receive the message.
  std::optional<std::uint64_t> bytes;
  std::optional<CollectiveKind> collective;
  std::string group;  // empty: all ranks
  std::uint32_t root = 0;
  std::optional<std::uint32_t> peer;  // the other end of a send or receive
  std::int32_t tag = 0;
  bool on_host = false;  // done by the processor, beside what an accelerator does
  base::Duration start{};
  base::Duration duration{};
  std::vector<std::uint64_t> data_deps;
  std::vector<std::uint64_t> control_deps;

  // Everything as in a new node; keeps memory.
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

// Ranks that a trace may speak of.
inline constexpr std::uint32_t kMaxTraceRanks = 65'536;
// What takes longer is taken to take so long: sums of times stay numbers.
inline constexpr base::Duration kMaxNodeDuration = base::seconds(1'000'000);
constexpr base::Duration bounded_duration(std::int64_t nanoseconds) {
  const std::int64_t most = kMaxNodeDuration.count();
  return base::nanoseconds(nanoseconds < 0 ? 0 : nanoseconds > most ? most : nanoseconds);
}
// A count of microseconds, of which a file may have any.
constexpr base::Duration bounded_microseconds(std::uint64_t count) {
  const std::uint64_t most = static_cast<std::uint64_t>(kMaxNodeDuration.count()) / 1000;
  return base::microseconds(static_cast<std::int64_t>(count > most ? most : count));
}

}  // namespace spillway::chakra
