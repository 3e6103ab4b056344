// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>

namespace spillway::emulate {

namespace {

constexpr std::size_t kMaxAnomalies = 16;  // kept per kind

void remember(std::vector<RankGraph::Anomaly>& list, std::uint64_t node, std::uint64_t refers_to) {
  if (list.size() < kMaxAnomalies) {
    list.push_back({node, refers_to});
  }
}

// Finds nodes by id: by binary search if ids ascend, as in most files, else through a sorted index.
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
        fmt::format("rank {} is beyond the limit of {} ranks", rank_, kMaxTraceRanks));
  }
  resize(std::max(rank_ + 1, std::min(info.world.value_or(1), kMaxTraceRanks)));
  if (world_.has_trace[rank_]) {
    return base::invalid_argument(
        fmt::format("rank {} already has a trace, in {}", rank_, world_.ranks[rank_].source));
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
    return base::invalid_argument("the trace has a node before the description of its rank");
  }
  total_edges_ += node.data_deps.size() + (options_.follows_control ? node.control_deps.size() : 0);
  if (++total_nodes_ > kMaxGraphNodes || total_edges_ > kMaxGraphEdges) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("the trace has more than {} nodes or {} dependencies", kMaxGraphNodes,
                        kMaxGraphEdges)};
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

// ------------------------------------------------------------------ matches

namespace {

constexpr std::size_t kMaxRanges = 8;  // named in a text

// Each rank fits into 16 bits.
std::uint64_t channel_key(std::uint32_t from, std::uint32_t to, std::int32_t tag) {
  return std::uint64_t{from} << 48 | std::uint64_t{to} << 32 | static_cast<std::uint32_t>(tag);
}

}  // namespace

static_assert(kMaxTraceRanks <= 1U << 16);

Matches::Matches(const World& world) : world_(world) {
  match_of_.resize(world.size());
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
    match_of_[rank].assign(world.ranks[rank].nodes.size(), kNoMatch);
  }
  for (const GraphGroup& group : world.groups) {
    expected_.push_back(static_cast<std::uint32_t>(
        std::count_if(group.ranks.begin(), group.ranks.end(),
                      [&world](std::uint32_t rank) { return world.has_trace[rank]; })));
  }
  match_collectives();
  match_messages();
}

// Numbers each node within its group first. Once the size of every group is known, adds the index
// of the group's first match.
void Matches::match_collectives() {
  std::vector<std::uint32_t> calls(world_.groups.size(), 0);
  std::vector<std::uint32_t> most(world_.groups.size(), 0);
  std::vector<std::uint32_t> touched;
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    const std::vector<GraphNode>& nodes = world_.ranks[rank].nodes;
    for (NodeIndex node = 0; node < nodes.size(); ++node) {
      if (nodes[node].kind == NodeKind::kCollective && nodes[node].is_complete()) {
        const std::uint32_t group = nodes[node].group;
        if (calls[group] == 0) {
          touched.push_back(group);
        }
        match_of_[rank][node] = calls[group]++;
      }
    }
    for (const std::uint32_t group : touched) {
      most[group] = std::max(most[group], calls[group]);
      calls[group] = 0;
    }
    touched.clear();
  }
  group_first_.push_back(0);
  for (const std::uint32_t count : most) {
    group_first_.push_back(group_first_.back() + count);
  }
  first_message_ = group_first_.back();
  count_ = first_message_;
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    for (NodeIndex node = 0; node < match_of_[rank].size(); ++node) {
      if (match_of_[rank][node] != kNoMatch) {
        match_of_[rank][node] += group_first_[world_.ranks[rank].nodes[node].group];
      }
    }
  }
}

void Matches::match_messages() {
  std::unordered_map<std::uint64_t, std::uint32_t> known;
  std::vector<std::vector<std::uint32_t>> channel_of_node(world_.size());
  const auto is_message = [](const GraphNode& node) {
    return (node.kind == NodeKind::kSend || node.kind == NodeKind::kReceive) && node.is_complete();
  };
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    const std::vector<GraphNode>& nodes = world_.ranks[rank].nodes;
    for (NodeIndex node = 0; node < nodes.size(); ++node) {
      if (!is_message(nodes[node])) {
        continue;
      }
      const bool sends = nodes[node].kind == NodeKind::kSend;
      const std::uint32_t from = sends ? rank : nodes[node].peer;
      const std::uint32_t to = sends ? nodes[node].peer : rank;
      const auto [entry, is_new] = known.try_emplace(channel_key(from, to, nodes[node].tag),
                                                     static_cast<std::uint32_t>(channels_.size()));
      if (is_new) {
        channels_.push_back({from, to, nodes[node].tag, 0, 0});
      }
      Channel& channel = channels_[entry->second];
      channel_of_node[rank].push_back(entry->second);
      match_of_[rank][node] = sends ? channel.sends++ : channel.receives++;
    }
  }
  for (const Channel& channel : channels_) {
    channel_first_.push_back(static_cast<MatchIndex>(count_));
    count_ += std::max(channel.sends, channel.receives);
  }
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    std::size_t next = 0;
    for (NodeIndex node = 0; node < match_of_[rank].size(); ++node) {
      if (is_message(world_.ranks[rank].nodes[node])) {
        match_of_[rank][node] += channel_first_[channel_of_node[rank][next++]];
      }
    }
  }
}

std::uint32_t Matches::group_of(MatchIndex match) const {
  // The last group that begins at or before `match`; an empty group begins where the next does.
  const auto found = std::upper_bound(group_first_.begin(), group_first_.end(), match);
  return static_cast<std::uint32_t>(found - group_first_.begin() - 1);
}

std::uint32_t Matches::sequence_of(MatchIndex match) const {
  return is_collective(match) ? match - group_first_[group_of(match)]
                              : match - channel_first_[channel_of(match)];
}

std::size_t Matches::channel_of(MatchIndex match) const {
  const auto found = std::upper_bound(channel_first_.begin(), channel_first_.end(), match);
  return static_cast<std::size_t>(found - channel_first_.begin() - 1);
}

std::string Matches::describe(MatchIndex match, std::span<const NodePlace> arrived) const {
  if (!is_collective(match)) {
    const Channel& channel = channels_[channel_of(match)];
    const bool received = !arrived.empty() && arrived.front().rank == channel.to;
    return fmt::format(
        "message {} from rank {} to rank {} with tag {}: rank {} arrived, rank {} did not",
        sequence_of(match), channel.from, channel.to, channel.tag,
        received ? channel.to : channel.from, received ? channel.from : channel.to);
  }
  const GraphGroup& group = world_.groups[group_of(match)];
  std::vector<std::uint32_t> here;
  for (const NodePlace& place : arrived) {
    here.push_back(place.rank);
  }
  std::sort(here.begin(), here.end());
  std::vector<std::uint32_t> absent;
  for (const std::uint32_t rank : group.ranks) {
    if (world_.has_trace[rank] && !std::binary_search(here.begin(), here.end(), rank)) {
      absent.push_back(rank);
    }
  }
  const GraphNode& first = world_.ranks[arrived.front().rank].nodes[arrived.front().node];
  return fmt::format("{} {} of {}: {} arrived, {} did not", collective_kind_name(first.collective),
                     sequence_of(match),
                     group.name.empty() ? "all ranks" : fmt::format("group '{}'", group.name),
                     ranks_subject(here), ranks_subject(absent));
}

std::string ranks_text(std::span<const std::uint32_t> ranks) {
  std::string text;
  std::size_t ranges = 0;
  for (std::size_t i = 0; i < ranks.size(); ++ranges) {
    if (ranges == kMaxRanges) {
      return text + ", ...";
    }
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) {
      ++end;
    }
    text += fmt::format("{}{}", ranges == 0 ? "" : ", ", ranks[i]);
    text += end - i > 1 ? fmt::format("-{}", ranks[end - 1]) : "";
    i = end;
  }
  return text;
}

std::string ranks_subject(std::span<const std::uint32_t> ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", ranks_text(ranks));
}

}  // namespace spillway::emulate
