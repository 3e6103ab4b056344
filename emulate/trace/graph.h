// SPDX-License-Identifier: Apache-2.0
//
// All ranks' traces in memory, compact enough to simulate thousands of ranks: 48 bytes per node, 4
// per dependency. Names are kept on request.
//
//   GraphBuilder builder(options);
//   read_trace(..., builder);  ...            reader.h
//   World world = std::move(builder).finish();
//
// Dependencies are indices of nodes of the same rank. Those that name no node, or their own, are
// dropped and counted. If several nodes share an id, it means the first.
//
// Groups: a trace's own list defines the members of a group (RankInfo::groups). If it lacks a name,
// the members are the ranks that use that name. The group without a name is all ranks. Two
// different lists are two groups, even under one name.
//
// Plain values, unchanged after finish(). Limits: kMaxGraphNodes and kMaxGraphEdges for all ranks
// together; a trace beyond them fails with an error that names the limit.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "emulate/trace/node.h"

namespace spillway::emulate {

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
  // True if the node says everything about what it moves. Others only take their time.
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

  // Dropped dependencies and duplicate ids: counts, and the first few.
  std::uint64_t dangling = 0;
  std::uint64_t own = 0;
  std::uint64_t duplicates = 0;
  std::uint64_t control_dangling = 0;  // of control dependencies, whether or not they are followed
  std::uint64_t control_own = 0;
  struct Oddity {
    std::uint64_t node = 0;
    std::uint64_t names = 0;
  };
  std::vector<Oddity> first_dangling;
  std::vector<Oddity> first_own;
  std::vector<Oddity> first_duplicates;

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

}  // namespace spillway::emulate
