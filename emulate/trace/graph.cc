// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

namespace spillway::emulate {
namespace {

constexpr std::size_t kRemembered = 16;  // kept per kind, by id

void remember(std::vector<RankGraph::Oddity>& list, std::uint64_t node, std::uint64_t names) {
  if (list.size() < kRemembered) {
    list.push_back({node, names});
  }
}

// Finds nodes by id: by binary search if ids ascend, as in most files, else in a sorted list.
class IdIndex {
 public:
  explicit IdIndex(RankGraph& graph) : nodes_(graph.nodes) {
    const auto by_id = [](const GraphNode& a, const GraphNode& b) { return a.id < b.id; };
    const auto not_ascending = [](const GraphNode& a, const GraphNode& b) { return a.id >= b.id; };
    if (std::adjacent_find(nodes_.begin(), nodes_.end(), not_ascending) == nodes_.end()) {
      return;
    }
    order_.resize(nodes_.size());
    std::iota(order_.begin(), order_.end(), 0U);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](NodeIndex a, NodeIndex b) { return by_id(nodes_[a], nodes_[b]); });
    for (std::size_t i = 1; i < order_.size(); ++i) {
      if (nodes_[order_[i]].id == nodes_[order_[i - 1]].id) {
        ++graph.duplicates;
        remember(graph.first_duplicates, nodes_[order_[i]].id, nodes_[order_[i]].id);
      }
    }
  }

  std::optional<NodeIndex> find(std::uint64_t id) const {
    if (order_.empty()) {
      const auto found = std::lower_bound(
          nodes_.begin(), nodes_.end(), id,
          [](const GraphNode& node, std::uint64_t value) { return node.id < value; });
      return found == nodes_.end() || found->id != id
                 ? std::nullopt
                 : std::optional(static_cast<NodeIndex>(found - nodes_.begin()));
    }
    const auto found = std::lower_bound(
        order_.begin(), order_.end(), id,
        [this](NodeIndex node, std::uint64_t value) { return nodes_[node].id < value; });
    return found == order_.end() || nodes_[*found].id != id ? std::nullopt : std::optional(*found);
  }

 private:
  const std::vector<GraphNode>& nodes_;
  std::vector<NodeIndex> order_;
};

GraphNode compact(const Node& node) {
  GraphNode made;
  made.id = node.id;
  made.duration_ns = bounded_duration(node.duration.count()).count();
  made.bytes = node.bytes.value_or(0);
  made.peer = node.peer.value_or(kNoPeer);
  made.tag = node.tag;
  made.root = static_cast<std::uint16_t>(node.root);
  made.kind = node.kind;
  made.collective = node.collective.value_or(CollectiveKind::kAllReduce);
  made.has_bytes = node.bytes.has_value();
  made.has_collective = node.collective.has_value();
  made.on_host = node.on_host;
  return made;
}

}  // namespace

static_assert(sizeof(GraphNode) == 48, "8 + 8 + 8 + 4 + 4 + 4 + 2 + 1 + 1 + 3 bytes, and padding");

std::uint64_t World::nodes() const {
  return std::accumulate(
      ranks.begin(), ranks.end(), std::uint64_t{0},
      [](std::uint64_t sum, const RankGraph& rank) { return sum + rank.nodes.size(); });
}

std::uint64_t World::edges() const {
  return std::accumulate(
      ranks.begin(), ranks.end(), std::uint64_t{0},
      [](std::uint64_t sum, const RankGraph& rank) { return sum + rank.deps.size(); });
}

void GraphBuilder::set_source(std::string source, std::uint32_t rank) {
  link_rank();
  source_ = std::move(source);
  default_rank_ = rank;
}

void GraphBuilder::resize(std::uint32_t size) {
  if (world_.groups.empty()) {
    world_.groups.push_back({"", {}});
    by_use_.push_back(false);
  }
  if (size > world_.size()) {
    world_.ranks.resize(size);
    world_.has_trace.resize(size, false);
  }
}

base::Status GraphBuilder::on_rank(const RankInfo& info) {
  link_rank();
  rank_ = info.rank.value_or(default_rank_);
  if (rank_ >= kMaxTraceRanks) {
    return base::invalid_argument(
        fmt::format("rank {}: there are at most {}", rank_, kMaxTraceRanks));
  }
  resize(std::max(rank_ + 1, std::min(info.world.value_or(1), kMaxTraceRanks)));
  if (world_.has_trace[rank_]) {
    return base::invalid_argument(
        fmt::format("rank {} has a trace already, in {}", rank_, world_.ranks[rank_].source));
  }
  world_.has_trace[rank_] = true;
  world_.ranks[rank_].source = source_;
  in_rank_ = true;
  raw_ = RawDeps();
  declared_.clear();
  used_.clear();
  for (const GroupInfo& group : info.groups) {
    std::vector<std::uint32_t> ranks = group.ranks;
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    if (!ranks.empty()) {
      resize(ranks.back() + 1);
    }
    declared_[group.name] = std::move(ranks);
  }
  return {};
}

std::uint32_t GraphBuilder::group_of(const std::string& name) {
  if (name.empty()) {
    return 0;
  }
  if (const auto found = used_.find(name); found != used_.end()) {
    return found->second;
  }
  const auto declared = declared_.find(name);
  const bool by_use = declared == declared_.end() || declared->second.empty();
  const auto [entry, is_new] =
      known_groups_.try_emplace({name, by_use ? std::vector<std::uint32_t>() : declared->second},
                                static_cast<std::uint32_t>(world_.groups.size()));
  if (is_new) {
    world_.groups.push_back({name, entry->first.second});
    by_use_.push_back(by_use);
  }
  if (by_use) {
    world_.groups[entry->second].ranks.push_back(rank_);
  }
  used_[name] = entry->second;
  return entry->second;
}

base::Status GraphBuilder::on_node(const Node& node) {
  if (!in_rank_) {
    return base::invalid_argument("a node came before its rank");
  }
  total_edges_ += node.data_deps.size() + (options_.follows_control ? node.control_deps.size() : 0);
  if (++total_nodes_ > kMaxGraphNodes || total_edges_ > kMaxGraphEdges) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("more than {} nodes or {} dependencies", kMaxGraphNodes, kMaxGraphEdges)};
  }
  RankGraph& graph = world_.ranks[rank_];
  graph.nodes.push_back(compact(node));
  if (node.kind == NodeKind::kCollective) {
    graph.nodes.back().group = group_of(node.group);
  }
  if (options_.keeps_names) {
    graph.names.push_back(node.name);
  }
  raw_.first.push_back(raw_.ids.size());
  raw_.ids.insert(raw_.ids.end(), node.data_deps.begin(), node.data_deps.end());
  raw_.control_first.push_back(raw_.control_ids.size());
  raw_.control_ids.insert(raw_.control_ids.end(), node.control_deps.begin(),
                          node.control_deps.end());
  return {};
}

void GraphBuilder::link_rank() {
  if (!in_rank_) {
    return;
  }
  in_rank_ = false;
  RankGraph& graph = world_.ranks[rank_];
  graph.nodes.shrink_to_fit();
  const IdIndex index(graph);
  raw_.first.push_back(raw_.ids.size());
  raw_.control_first.push_back(raw_.control_ids.size());
  graph.first_dep.reserve(graph.nodes.size() + 1);
  graph.deps.reserve(raw_.ids.size());
  for (NodeIndex node = 0; node < graph.nodes.size(); ++node) {
    graph.first_dep.push_back(graph.deps.size());
    const std::uint64_t id = graph.nodes[node].id;
    for (std::uint64_t i = raw_.first[node]; i < raw_.first[node + 1]; ++i) {
      const auto found = index.find(raw_.ids[i]);
      if (!found) {
        ++graph.dangling;
        remember(graph.first_dangling, id, raw_.ids[i]);
      } else if (*found == node) {
        ++graph.own;
        remember(graph.first_own, id, id);
      } else {
        graph.deps.push_back(*found);
      }
    }
    for (std::uint64_t i = raw_.control_first[node]; i < raw_.control_first[node + 1]; ++i) {
      const auto found = index.find(raw_.control_ids[i]);
      graph.control_dangling += !found ? 1 : 0;
      graph.control_own += found && *found == node ? 1 : 0;
      if (options_.follows_control && found && *found != node) {
        graph.deps.push_back(*found);
      }
    }
  }
  graph.first_dep.push_back(graph.deps.size());
  graph.deps.shrink_to_fit();
  raw_ = RawDeps();
}

World GraphBuilder::finish() && {
  link_rank();
  resize(0);
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    world_.groups[0].ranks.push_back(rank);
    if (world_.ranks[rank].first_dep.empty()) {
      world_.ranks[rank].first_dep.push_back(0);
    }
  }
  for (GraphGroup& group : world_.groups) {
    std::sort(group.ranks.begin(), group.ranks.end());
  }
  return std::move(world_);
}

Dependents::Dependents(const RankGraph& graph)
    : first_(graph.nodes.size() + 1, 0), nodes_(graph.deps.size()) {
  for (const NodeIndex dep : graph.deps) {
    ++first_[dep + 1];
  }
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  std::vector<std::uint64_t> next(first_.begin(), first_.end() - 1);
  for (NodeIndex node = 0; node < graph.nodes.size(); ++node) {
    for (const NodeIndex dep : graph.deps_of(node)) {
      nodes_[next[dep]++] = node;
    }
  }
}

std::vector<std::uint32_t> dependency_counts(const RankGraph& graph) {
  std::vector<std::uint32_t> counts(graph.nodes.size());
  for (NodeIndex node = 0; node < graph.nodes.size(); ++node) {
    counts[node] = static_cast<std::uint32_t>(graph.first_dep[node + 1] - graph.first_dep[node]);
  }
  return counts;
}

}  // namespace spillway::emulate
