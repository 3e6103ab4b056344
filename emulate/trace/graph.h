// SPDX-License-Identifier: Apache-2.0
//
// The graphs of all ranks' traces in memory, compact enough to simulate thousands of ranks: 48
// bytes per node and 4 per dependency. Names are kept on request. Matches (at the end) tells which
// nodes of different ranks belong together.
//
//   GraphBuilder builder(options);
//   read_trace(..., builder);  ...            reader.h
//   World world = std::move(builder).finish();
//   Matches matches(world);
//
// Dependencies are indices of nodes of the same rank. A dependency on a missing node, or of a node
// on itself, is dropped and counted. If several nodes share an id, the id refers to the first of
// them.
//
// Groups: the trace's own list defines the members of a group (RankInfo::groups). Without such a
// list, the members are the ranks that use the group's name. The group without a name contains all
// ranks. Two different lists are two groups, even under one name.
//
// Plain values, unchanged after finish(). Limits: kMaxGraphNodes and kMaxGraphEdges for all ranks
// together; a larger trace fails with an error that names the limit.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "observe/chakra.h"

namespace spillway::emulate {

// Readers and writers exchange chakra::Node (observe/chakra.h; read it first). These names are
// used throughout this namespace.
using chakra::bounded_duration;
using chakra::bounded_microseconds;
using chakra::collective_kind_name;
using chakra::CollectiveKind;
using chakra::GroupInfo;
using chakra::kCollectiveKinds;
using chakra::kMaxNodeDuration;
using chakra::kMaxTraceRanks;
using chakra::Node;
using chakra::node_kind_name;
using chakra::NodeKind;
using chakra::NodeSink;
using chakra::parse_collective_kind;
using chakra::RankInfo;

inline constexpr std::uint64_t kMaxGraphNodes = 400'000'000;
inline constexpr std::uint64_t kMaxGraphEdges = 2'000'000'000;
inline constexpr std::uint32_t kNoPeer = UINT32_MAX;

// Index of a rank's node in every member of RankGraph.
using NodeIndex = std::uint32_t;

struct GraphNode {
  std::uint64_t id = 0;
  std::int64_t duration_ns = 0;
  std::uint64_t bytes = 0;
  std::uint32_t group = 0;  // for a collective: index into World::groups
  std::uint32_t peer = kNoPeer;
  std::int32_t tag = 0;
  std::uint16_t root = 0;
  NodeKind kind = NodeKind::kOther;
  CollectiveKind collective = CollectiveKind::kAllReduce;
  bool has_bytes = false;
  bool has_collective = false;
  bool on_host = false;

  bool communicates() const { return kind != NodeKind::kOther && kind != NodeKind::kCompute; }
  // True if the node has kind, size and peer of its communication. Without them, a run only spends
  // the recorded time.
  bool is_complete() const {
    return kind == NodeKind::kCollective
               ? has_collective && (has_bytes || collective == CollectiveKind::kBarrier)
               : peer != kNoPeer && has_bytes;
  }
  bool moves_data() const { return communicates() && is_complete(); }
};

struct RankGraph {
  std::string source;  // the file, for error messages
  std::vector<GraphNode> nodes;
  std::vector<std::uint64_t> first_dep;  // per node, and one more for the end
  std::vector<NodeIndex> deps;
  std::vector<std::string> names;  // per node, or empty

  // Counts of dropped dependencies and of duplicate ids, and the first few of each.
  std::uint64_t dangling = 0;
  std::uint64_t own = 0;
  std::uint64_t duplicates = 0;
  std::uint64_t control_dangling = 0;  // counted even if control dependencies are not followed
  std::uint64_t control_own = 0;
  struct Anomaly {
    std::uint64_t node = 0;
    std::uint64_t refers_to = 0;
  };
  std::vector<Anomaly> first_dangling;
  std::vector<Anomaly> first_own;
  std::vector<Anomaly> first_duplicates;

  std::span<const NodeIndex> deps_of(NodeIndex node) const {
    return std::span(deps).subspan(first_dep[node], first_dep[node + 1] - first_dep[node]);
  }
};

struct GraphGroup {
  std::string name;
  std::vector<std::uint32_t> ranks;  // ascending
};

struct World {
  std::vector<RankGraph> ranks;  // by rank; no nodes if the rank has no trace
  std::vector<bool> has_trace;
  std::vector<GraphGroup> groups;  // the first is all ranks

  std::uint32_t size() const { return static_cast<std::uint32_t>(ranks.size()); }
  std::uint64_t nodes() const;
  std::uint64_t edges() const;
};

// ------------------------------------------------------------------ building

struct GraphOptions {
  bool follows_control = false;
  bool keeps_names = false;
};

class GraphBuilder final : public NodeSink {
 public:
  explicit GraphBuilder(GraphOptions options) : options_(options) {}

  // The following nodes come from this file. `rank` is used if the file does not name one.
  void set_source(std::string source, std::uint32_t rank);
  base::Status on_rank(const RankInfo& info) override;
  base::Status on_node(const Node& node) override;
  World finish() &&;

 private:
  struct RawDeps {
    std::vector<std::uint64_t> ids;
    std::vector<std::uint64_t> first;
    std::vector<std::uint64_t> control_ids;
    std::vector<std::uint64_t> control_first;
  };

  std::uint32_t group_of(const std::string& name);
  void link_rank();
  void resize(std::uint32_t size);

  GraphOptions options_;
  std::string source_;
  std::uint32_t default_rank_ = 0;
  std::uint32_t rank_ = 0;
  bool in_rank_ = false;
  std::uint64_t total_nodes_ = 0;
  std::uint64_t total_edges_ = 0;
  World world_;
  RawDeps raw_;
  std::map<std::string, std::vector<std::uint32_t>, std::less<>> declared_;  // of this rank
  std::map<std::string, std::uint32_t, std::less<>> used_;                   // of this rank
  std::map<std::pair<std::string, std::vector<std::uint32_t>>, std::uint32_t> known_groups_;
  std::vector<bool> by_use_;  // per group: its members are the ranks that use it
};

// ------------------------------------------------------------------ dependents

// The reverse of dependencies: for each node, the nodes that wait for it.
class Dependents {
 public:
  explicit Dependents(const RankGraph& graph);

  std::span<const NodeIndex> of(NodeIndex node) const {
    return std::span(nodes_).subspan(first_[node], first_[node + 1] - first_[node]);
  }

 private:
  std::vector<std::uint64_t> first_;
  std::vector<NodeIndex> nodes_;
};

// The number of dependencies of each node.
std::vector<std::uint32_t> dependency_counts(const RankGraph& graph);

// ------------------------------------------------------------------ matches

using MatchIndex = std::uint32_t;
inline constexpr MatchIndex kNoMatch = UINT32_MAX;

struct Channel {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::int32_t tag = 0;
  std::uint32_t sends = 0;
  std::uint32_t receives = 0;
};

struct NodePlace {
  std::uint32_t rank = 0;
  NodeIndex node = 0;
};

// Matches nodes of different ranks. A match is one collective of one group, with all its members,
// or one message, with its sender and its receiver.
//
// The n-th collective of a group in a rank's file matches the n-th of every other member. The n-th
// send to a rank with a tag matches that rank's n-th receive from the sender with that tag. This is
// the order of the files, in which the real run called them, and not the order in which nodes
// become ready. A replay must keep it. Incomplete nodes (GraphNode::is_complete()) have no match.
//
// Built once from a world, which must outlive it. Four bytes per node.
class Matches {
 public:
  explicit Matches(const World& world);

  // Returns kNoMatch for computation and for incomplete nodes.
  MatchIndex of(std::uint32_t rank, NodeIndex node) const { return match_of_[rank][node]; }
  std::size_t count() const { return count_; }
  // Matches below this are collectives; the others are messages.
  MatchIndex first_message() const { return first_message_; }
  bool is_collective(MatchIndex match) const { return match < first_message_; }

  // For a collective: its group and its number within the group.
  std::uint32_t group_of(MatchIndex match) const;
  std::uint32_t sequence_of(MatchIndex match) const;
  // The number of members that have a trace: only these can arrive.
  std::uint32_t expected(std::uint32_t group) const { return expected_[group]; }
  // The number of collectives in a group, which is the largest number that one rank calls.
  std::uint32_t calls(std::uint32_t group) const {
    return group_first_[group + 1] - group_first_[group];
  }
  MatchIndex first_of_group(std::uint32_t group) const { return group_first_[group]; }

  std::span<const Channel> channels() const { return channels_; }
  std::size_t channel_of(MatchIndex match) const;
  MatchIndex first_of_channel(std::size_t channel) const { return channel_first_[channel]; }

  // Returns "all-reduce 3 of group 'dp0': ranks 0-2 arrived, rank 3 did not", or "message 0 from
  // rank 1 to rank 2 with tag 5: ...".
  std::string describe(MatchIndex match, std::span<const NodePlace> arrived) const;

 private:
  void match_collectives();
  void match_messages();

  const World& world_;
  std::vector<std::vector<MatchIndex>> match_of_;
  std::vector<MatchIndex> group_first_;
  std::vector<std::uint32_t> expected_;
  std::vector<Channel> channels_;
  std::vector<MatchIndex> channel_first_;
  MatchIndex first_message_ = 0;
  std::size_t count_ = 0;
};

// Formats ascending ranks as "0-2, 5", with at most a few ranges.
std::string ranks_text(std::span<const std::uint32_t> ranks);
// The same with the noun: "rank 3", "ranks 0-2, 5".
std::string ranks_subject(std::span<const std::uint32_t> ranks);

}  // namespace spillway::emulate
