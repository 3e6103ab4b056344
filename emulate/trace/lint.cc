// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "emulate/trace/graph.h"

namespace spillway::emulate {
namespace {

constexpr std::size_t kMaxNamedInCycle = 12;

struct KindRow {
  const char* name;
  Severity severity;
};
constexpr std::array<KindRow, kFindingKinds> kKindRows = {{
    {"cycle", Severity::kError},
    {"duplicate id", Severity::kError},
    {"dangling dependency", Severity::kError},
    {"depends on itself", Severity::kError},
    {"disagreement", Severity::kError},
    {"unmatched", Severity::kError},
    {"cannot run", Severity::kError},
    {"incomplete", Severity::kWarning},
    {"no trace", Severity::kNote},
    {"control dependencies", Severity::kNote},
}};

class Linter {
 public:
  explicit Linter(const World& world) : world_(world), matches_(world) {}

  LintReport run();

 private:
  void add(FindingKind kind, const std::string& file, std::optional<std::uint64_t> node,
           std::string text);
  void add_several(FindingKind kind, const RankGraph& graph, std::uint64_t count,
                   const std::vector<RankGraph::Anomaly>& first, const char* sentence);
  void check_ids(const RankGraph& graph);
  void check_cycles(const RankGraph& graph);
  void report_cycle(const RankGraph& graph, const std::vector<std::uint32_t>& left);
  void check_nodes(const RankGraph& graph);
  void check_groups();
  void check_calls();
  void check_messages();
  void check_blocked();
  void check_missing_ranks();

  const World& world_;
  const Matches matches_;
  LintReport report_;
};

void Linter::add(FindingKind kind, const std::string& file, std::optional<std::uint64_t> node,
                 std::string text) {
  if (report_.counts[static_cast<std::size_t>(kind)]++ < kMaxFindingsPerKind) {
    report_.findings.push_back({kind, file, node, std::move(text)});
  }
}

void Linter::add_several(FindingKind kind, const RankGraph& graph, std::uint64_t count,
                         const std::vector<RankGraph::Anomaly>& first, const char* sentence) {
  for (const RankGraph::Anomaly& anomaly : first) {
    add(kind, graph.source, anomaly.node, fmt::format(fmt::runtime(sentence), anomaly.refers_to));
  }
  report_.counts[static_cast<std::size_t>(kind)] += count - first.size();
}

void Linter::check_ids(const RankGraph& graph) {
  add_several(FindingKind::kDuplicateId, graph, graph.duplicates, graph.first_duplicates,
              "id {} is used more than once and refers to the first node");
  add_several(FindingKind::kDanglingDependency, graph, graph.dangling, graph.first_dangling,
              "depends on {}, which is not a node of this file");
  add_several(FindingKind::kDependsOnItself, graph, graph.own, graph.first_own,
              "depends on itself, {}");
  if (graph.control_dangling > 0 || graph.control_own > 0) {
    add(FindingKind::kControl, graph.source, std::nullopt,
        fmt::format("{} control dependencies refer to no node and {} to their own node",
                    graph.control_dangling, graph.control_own));
  }
}

// Removes nodes without open dependencies until none is left. All remaining nodes are on a cycle or
// depend on one.
void Linter::check_cycles(const RankGraph& graph) {
  const Dependents dependents(graph);
  std::vector<std::uint32_t> left = dependency_counts(graph);
  std::vector<NodeIndex> ready;
  for (NodeIndex node = 0; node < graph.nodes.size(); ++node) {
    if (left[node] == 0) {
      ready.push_back(node);
    }
  }
  std::size_t done = 0;
  while (!ready.empty()) {
    const NodeIndex node = ready.back();
    ready.pop_back();
    ++done;
    for (const NodeIndex waiter : dependents.of(node)) {
      if (--left[waiter] == 0) {
        ready.push_back(waiter);
      }
    }
  }
  if (done < graph.nodes.size()) {
    report_cycle(graph, left);
  }
}

// Walks from a remaining node, always to a remaining dependency, until a node repeats.
void Linter::report_cycle(const RankGraph& graph, const std::vector<std::uint32_t>& left) {
  const auto is_left = [&left](NodeIndex node) { return left[node] > 0; };
  NodeIndex node = 0;
  while (!is_left(node)) {
    ++node;
  }
  std::unordered_map<NodeIndex, std::size_t> seen;
  std::vector<NodeIndex> walk;
  while (seen.emplace(node, walk.size()).second) {
    walk.push_back(node);
    const auto deps = graph.deps_of(node);
    node = *std::find_if(deps.begin(), deps.end(), is_left);
  }
  std::string text;
  const std::size_t begin = seen[node];
  for (std::size_t i = begin; i < walk.size() && i - begin < kMaxNamedInCycle; ++i) {
    text += fmt::format("{} waits for ", graph.nodes[walk[i]].id);
  }
  const std::size_t length = walk.size() - begin;
  text += length > kMaxNamedInCycle ? "..." : std::to_string(graph.nodes[node].id);
  const auto stuck = std::count_if(left.begin(), left.end(), [](std::uint32_t n) { return n > 0; });
  add(FindingKind::kCycle, graph.source, graph.nodes[node].id,
      fmt::format("{} nodes form a cycle: {}; {} nodes are in the cycle or depend on it", length,
                  text, stuck));
}

void Linter::check_nodes(const RankGraph& graph) {
  for (const GraphNode& node : graph.nodes) {
    if (!node.communicates() || node.is_complete()) {
      continue;
    }
    std::string missing;
    if (node.kind == NodeKind::kCollective && !node.has_collective) {
      missing = "its kind";
    } else if (node.kind != NodeKind::kCollective && node.peer == kNoPeer) {
      missing = "its peer rank";
    }
    if (!node.has_bytes) {
      missing += missing.empty() ? "its size" : " and its size";
    }
    add(FindingKind::kIncomplete, graph.source, node.id,
        fmt::format("a {} without {}", node_kind_name(node.kind), missing));
  }
}

// Every caller must be a member, and all members must call equally often.
void Linter::check_groups() {
  std::vector<std::uint32_t> calls(world_.groups.size(), 0);
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    const RankGraph& graph = world_.ranks[rank];
    std::vector<std::uint32_t> groups;
    for (const GraphNode& node : graph.nodes) {
      if (node.kind == NodeKind::kCollective && node.is_complete() && calls[node.group]++ == 0) {
        groups.push_back(node.group);
      }
    }
    for (const std::uint32_t group : groups) {
      const GraphGroup& members = world_.groups[group];
      if (!std::binary_search(members.ranks.begin(), members.ranks.end(), rank)) {
        add(FindingKind::kDisagreement, graph.source, std::nullopt,
            fmt::format("rank {} calls collectives of group '{}', whose members are {}", rank,
                        members.name, ranks_text(members.ranks)));
      } else if (calls[group] != matches_.calls(group)) {
        add(FindingKind::kDisagreement, graph.source, std::nullopt,
            fmt::format("rank {} calls {} collectives of group '{}', other members {}", rank,
                        calls[group], members.name, matches_.calls(group)));
      }
      calls[group] = 0;
    }
  }
}

// All callers of a collective must call what its first caller calls.
void Linter::check_calls() {
  constexpr std::uint32_t kNoRank = UINT32_MAX;
  std::vector<NodePlace> first(matches_.first_message(), NodePlace{kNoRank, 0});
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    const RankGraph& graph = world_.ranks[rank];
    for (NodeIndex index = 0; index < graph.nodes.size(); ++index) {
      const MatchIndex match = matches_.of(rank, index);
      if (match == kNoMatch || !matches_.is_collective(match)) {
        continue;
      }
      NodePlace& place = first[match];
      if (place.rank == kNoRank) {
        place = {rank, index};
        continue;
      }
      const GraphNode& node = graph.nodes[index];
      const GraphNode& other = world_.ranks[place.rank].nodes[place.node];
      if (node.collective != other.collective || node.bytes != other.bytes ||
          node.root != other.root) {
        add(FindingKind::kDisagreement, graph.source, node.id,
            fmt::format(
                "collective {} of group '{}': rank {} calls {} of {} bytes, root {}, rank {} "
                "(node {}) {} of {} bytes, root {}",
                matches_.sequence_of(match), world_.groups[node.group].name, rank,
                collective_kind_name(node.collective), node.bytes, node.root, place.rank, other.id,
                collective_kind_name(other.collective), other.bytes, other.root));
      }
    }
  }
}

void Linter::check_messages() {
  for (const Channel& channel : matches_.channels()) {
    const bool has_both = channel.from < world_.size() && channel.to < world_.size() &&
                          world_.has_trace[channel.from] && world_.has_trace[channel.to];
    const std::string& file =
        channel.from < world_.size() ? world_.ranks[channel.from].source : std::string();
    if (channel.from >= world_.size() || channel.to >= world_.size()) {
      add(FindingKind::kUnmatched, file, std::nullopt,
          fmt::format("messages go from rank {} to rank {}, but there are {} ranks", channel.from,
                      channel.to, world_.size()));
    } else if (has_both && channel.sends != channel.receives) {
      add(FindingKind::kUnmatched, file, std::nullopt,
          fmt::format("rank {} sends {} messages with tag {} to rank {}, which receives {}",
                      channel.from, channel.sends, channel.tag, channel.to, channel.receives));
    }
  }
  std::unordered_map<MatchIndex, std::uint64_t> bytes;
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    const RankGraph& graph = world_.ranks[rank];
    for (NodeIndex index = 0; index < graph.nodes.size(); ++index) {
      const MatchIndex match = matches_.of(rank, index);
      if (match == kNoMatch || matches_.is_collective(match)) {
        continue;
      }
      const auto [entry, is_first] = bytes.try_emplace(match, graph.nodes[index].bytes);
      if (is_first) {
        continue;
      }
      if (entry->second != graph.nodes[index].bytes) {
        add(FindingKind::kDisagreement, graph.source, graph.nodes[index].id,
            fmt::format("the message has {} bytes here and {} bytes at rank {}",
                        graph.nodes[index].bytes, entry->second, graph.nodes[index].peer));
      }
      bytes.erase(entry);
    }
  }
}

void Linter::check_missing_ranks() {
  std::vector<std::uint32_t> absent;
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    if (!world_.has_trace[rank]) {
      absent.push_back(rank);
    }
  }
  if (!absent.empty()) {
    add(FindingKind::kNoTrace, "", std::nullopt,
        fmt::format("there is no trace of ranks {}: their nodes are not checked",
                    ranks_text(absent)));
  }
}

// ------------------------------------------------------------------ nodes that cannot run

// Runs all ranks without time. Computing and sending end at once. A receive ends when its message
// was sent, a collective when all members that have a trace have arrived.
class UntimedRun {
 public:
  UntimedRun(const World& world, const Matches& matches)
      : world_(world), matches_(matches), sent_(matches.count() - matches.first_message()) {}

  void run();
  const std::unordered_map<MatchIndex, std::vector<NodePlace>>& waiting() const { return waiting_; }

 private:
  void begin(NodePlace place);
  void arrive(MatchIndex match, NodePlace place);
  void end(NodePlace place) { ended_.push_back(place); }

  const World& world_;
  const Matches& matches_;
  std::vector<bool> sent_;
  std::unordered_map<MatchIndex, std::vector<NodePlace>> waiting_;
  std::vector<NodePlace> ended_;
};

void UntimedRun::begin(NodePlace place) {
  const MatchIndex match = matches_.of(place.rank, place.node);
  if (match == kNoMatch) {
    end(place);
    return;
  }
  const GraphNode& node = world_.ranks[place.rank].nodes[place.node];
  const bool has_other = node.kind == NodeKind::kCollective ||
                         (node.peer < world_.size() && world_.has_trace[node.peer]);
  if (!has_other) {
    end(place);
  } else if (node.kind == NodeKind::kSend) {
    end(place);
    sent_[match - matches_.first_message()] = true;
    if (const auto found = waiting_.find(match); found != waiting_.end()) {
      end(found->second.front());
      waiting_.erase(found);
    }
  } else if (node.kind == NodeKind::kReceive && sent_[match - matches_.first_message()]) {
    end(place);
  } else {
    arrive(match, place);
  }
}

void UntimedRun::arrive(MatchIndex match, NodePlace place) {
  std::vector<NodePlace>& here = waiting_[match];
  here.push_back(place);
  if (!matches_.is_collective(match)) {
    return;
  }
  const std::uint32_t group = world_.ranks[place.rank].nodes[place.node].group;
  if (here.size() >= matches_.expected(group)) {
    ended_.insert(ended_.end(), here.begin(), here.end());
    waiting_.erase(match);
  }
}

void UntimedRun::run() {
  std::vector<Dependents> dependents;
  std::vector<std::vector<std::uint32_t>> left;
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    dependents.emplace_back(world_.ranks[rank]);
    left.push_back(dependency_counts(world_.ranks[rank]));
    for (NodeIndex node = 0; node < left[rank].size(); ++node) {
      if (left[rank][node] == 0) {
        begin({rank, node});
      }
    }
  }
  while (!ended_.empty()) {
    const NodePlace place = ended_.back();
    ended_.pop_back();
    for (const NodeIndex waiter : dependents[place.rank].of(place.node)) {
      if (--left[place.rank][waiter] == 0) {
        begin({place.rank, waiter});
      }
    }
  }
}

void Linter::check_blocked() {
  UntimedRun run(world_, matches_);
  run.run();
  std::vector<MatchIndex> stuck;
  for (const auto& [match, places] : run.waiting()) {
    stuck.push_back(match);
  }
  std::sort(stuck.begin(), stuck.end());
  for (const MatchIndex match : stuck) {
    const std::vector<NodePlace>& arrived = run.waiting().at(match);
    const RankGraph& graph = world_.ranks[arrived.front().rank];
    add(FindingKind::kCannotRun, graph.source, graph.nodes[arrived.front().node].id,
        matches_.describe(match, arrived));
  }
}

LintReport Linter::run() {
  check_missing_ranks();
  for (const RankGraph& graph : world_.ranks) {
    check_ids(graph);
    check_cycles(graph);
    check_nodes(graph);
  }
  check_groups();
  check_calls();
  check_messages();
  check_blocked();
  return std::move(report_);
}

}  // namespace

const char* severity_name(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      break;
  }
  return "note";
}

const char* finding_kind_name(FindingKind kind) {
  return kKindRows[static_cast<std::size_t>(kind)].name;
}

Severity severity_of(FindingKind kind) {
  return kKindRows[static_cast<std::size_t>(kind)].severity;
}

std::uint64_t LintReport::count(Severity severity) const {
  std::uint64_t sum = 0;
  for (std::size_t kind = 0; kind < kFindingKinds; ++kind) {
    sum += kKindRows[kind].severity == severity ? counts[kind] : 0;
  }
  return sum;
}

LintReport lint(const World& world) {
  return Linter(world).run();
}

}  // namespace spillway::emulate
