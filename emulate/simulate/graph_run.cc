// SPDX-License-Identifier: Apache-2.0
#include "emulate/simulate/graph_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace spillway::emulate {

// ------------------------------------------------------------------ communication

namespace {

// The same as in collective/exact/planner.cc.
constexpr std::uint32_t kTreeMembers = 32;
constexpr std::uint32_t kRingMembers = 64;
constexpr double kSmallShard = 4 * 1024;
constexpr double kSmallMessage = 64 * 1024;

std::uint32_t tree_steps(std::uint32_t members) {
  return static_cast<std::uint32_t>(std::bit_width(members - 1));
}

FlowPlan plan_all_reduce(double bytes, std::uint32_t members, CollectiveAlgorithm algorithm) {
  const double n = members;
  if (algorithm == CollectiveAlgorithm::kSwitch) {
    return {FlowShape::kSwitch, bytes, 2};
  }
  const bool is_small = members > kTreeMembers && bytes / n < kSmallShard;
  if (algorithm == CollectiveAlgorithm::kAutomatic && is_small) {
    return {FlowShape::kPairs, 2.0 * bytes / n, 2 * tree_steps(members)};
  }
  const bool rings = algorithm == CollectiveAlgorithm::kRing ||
                     (algorithm == CollectiveAlgorithm::kAutomatic && members > kRingMembers);
  return rings ? FlowPlan{FlowShape::kRing, 2.0 * (n - 1) / n * bytes, 2 * (members - 1)}
               : FlowPlan{FlowShape::kPairs, 2.0 * bytes / n, 2};
}

// For reduce-scatter and all-gather: `shard` is the part that one rank ends or begins with.
FlowPlan plan_half(double shard, double all, std::uint32_t members, CollectiveAlgorithm algorithm) {
  const bool rings =
      algorithm == CollectiveAlgorithm::kRing || (algorithm == CollectiveAlgorithm::kAutomatic &&
                                                  members > kRingMembers && all >= kSmallMessage);
  return rings ? FlowPlan{FlowShape::kRing, shard * (members - 1), members - 1}
               : FlowPlan{FlowShape::kPairs, shard, 1};
}

}  // namespace

FlowPlan flow_plan_of(const Transfer& transfer, std::uint32_t members,
                      CollectiveAlgorithm algorithm, double all_reduce_factor) {
  const auto bytes = static_cast<double>(transfer.bytes);
  const double n = members;
  switch (transfer.collective) {
    case CollectiveKind::kAllReduce:
      return plan_all_reduce(all_reduce_factor * bytes, members, algorithm);
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kReduceScatterBlock:
      return plan_half(bytes / n, bytes, members, algorithm);
    case CollectiveKind::kAllGather:
      return plan_half(bytes, bytes, members, algorithm);
    case CollectiveKind::kBroadcast:
      return bytes < kSmallMessage ? FlowPlan{FlowShape::kFromRoot, bytes, tree_steps(members)}
                                   : FlowPlan{FlowShape::kRing, bytes, members - 1};
    case CollectiveKind::kReduce:
      return {FlowShape::kPairs, 2.0 * bytes / n, 2};
    case CollectiveKind::kGather:
      return {FlowShape::kToRoot, bytes, 1};
    case CollectiveKind::kScatter:
      return {FlowShape::kFromRoot, bytes / n, 1};
    case CollectiveKind::kAllToAll:
      return {FlowShape::kPairs, bytes / n, 1};
    case CollectiveKind::kBarrier:
      break;
  }
  return {FlowShape::kPairs, 1.0, 2 * tree_steps(members)};
}

namespace {

constexpr std::size_t kMaxNamedMatches = 8;  // matches that an error names

}  // namespace

GraphRun::GraphRun(const World& world, const Matches& matches, CommunicationModel& model,
                   const GraphRunOptions& options)
    : world_(world), matches_(matches), model_(model), options_(options), ranks_(world.size()) {
  dependents_.reserve(world.size());
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
    dependents_.emplace_back(world.ranks[rank]);
    ranks_[rank].left = dependency_counts(world.ranks[rank]);
    if (options.keeps_times) {
      result_.times.emplace_back(world.ranks[rank].nodes.size());
    }
  }
  for (const RankFault& fault : options.faults) {
    if (fault.rank < ranks_.size()) {
      ranks_[fault.rank].factor = fault.factor;
      ranks_[fault.rank].dies = fault.dies;
    }
  }
  result_.ranks.resize(world.size());
}

// The graph itself lacks these dependencies, because its edges connect different nodes.
base::Status GraphRun::find_self_dependency() const {
  for (const RankGraph& rank : world_.ranks) {
    if (!rank.first_own.empty()) {
      return {base::StatusCode::kMalformed,
              fmt::format("{}: node {} depends on itself and can never begin; `spillway emulate "
                          "lint` lists all such nodes",
                          rank.source, rank.first_own.front().node)};
    }
  }
  return {};
}

GraphRunResult GraphRun::run() {
  failed_ = find_self_dependency();
  if (failed_.ok()) {
    begin_all();
    release_dependents();
  }
  const base::Instant limit{options_.limit};
  while (failed_.ok() && now_ <= limit && (!computing_.empty() || model_.has_open())) {
    step();
  }
  result_.status = failed_.ok() ? unfinished_status(now_ > limit) : failed_;
  result_.events = result_.nodes_run + model_.events();
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    result_.ranks[rank].computing = ranks_[rank].computing.before(result_.ended);
  }
  return std::move(result_);
}

void GraphRun::begin_all() {
  for (std::uint32_t rank = 0; rank < world_.size(); ++rank) {
    for (NodeIndex node = 0; node < ranks_[rank].left.size(); ++node) {
      if (ranks_[rank].left[node] == 0) {
        become_ready({rank, node});
      }
    }
  }
}

// Advances to the next time at which a node or transfer ends, and handles everything that ends
// then.
void GraphRun::step() {
  const base::Instant limit = computing_.empty()
                                  ? base::Instant(options_.limit + base::nanoseconds(1))
                                  : base::Instant(base::nanoseconds(computing_.top().at));
  ended_transfers_.clear();
  now_ = model_.has_open() ? model_.advance(limit, ended_transfers_) : limit;
  for (const MatchIndex match : ended_transfers_) {
    end_transfer(match);
  }
  while (!computing_.empty() && computing_.top().at <= now_.since_zero().count()) {
    const NodePlace place = computing_.top().place;
    computing_.pop();
    if (has_died(place.rank)) {
      continue;
    }
    ComputeQueue& queue = queue_of(place);
    queue.is_busy = false;
    end_node(place);
    start_next(place.rank, queue, place);
  }
  release_dependents();
}

// A send may end a node at once, so this repeats until nothing changes.
void GraphRun::release_dependents() {
  while (!ended_.empty() && failed_.ok()) {
    const std::vector<NodePlace> ended = std::move(ended_);
    ended_.clear();
    for (const NodePlace place : ended) {
      for (const NodeIndex waiter : dependents_[place.rank].of(place.node)) {
        if (--ranks_[place.rank].left[waiter] == 0) {
          record_predecessor({place.rank, waiter}, place);
          become_ready({place.rank, waiter});
        }
      }
    }
  }
}

void GraphRun::become_ready(NodePlace place) {
  if (has_died(place.rank)) {
    return;
  }
  const MatchIndex match = matches_.of(place.rank, place.node);
  if (match != kNoMatch) {
    if (options_.keeps_times) {
      result_.times[place.rank][place.node].began = now_;
    }
    arrive(place, match);
    return;
  }
  ComputeQueue& queue = queue_of(place);
  queue.waiting.push_back(place.node);
  if (!queue.is_busy) {
    start_next(place.rank, queue, kNowhere);
  }
}

GraphRun::ComputeQueue& GraphRun::queue_of(NodePlace place) {
  const GraphNode& node = world_.ranks[place.rank].nodes[place.node];
  return node.on_host ? ranks_[place.rank].host : ranks_[place.rank].device;
}

void GraphRun::start_next(std::uint32_t rank, ComputeQueue& queue, NodePlace before) {
  if (queue.waiting.empty() || has_died(rank)) {
    return;
  }
  const NodeIndex node = queue.waiting.front();
  queue.waiting.pop_front();
  queue.is_busy = true;
  if (before.rank != kNowhere.rank) {
    record_predecessor({rank, node}, before);
  }
  begin_computing({rank, node});
}

void GraphRun::begin_computing(NodePlace place) {
  const GraphNode& node = world_.ranks[place.rank].nodes[place.node];
  const double factor = ranks_[place.rank].factor;
  const auto length = factor == 1.0 ? base::nanoseconds(node.duration_ns)
                                    : bounded_duration(static_cast<std::int64_t>(std::min(
                                          factor * static_cast<double>(node.duration_ns), 1e15)));
  const base::Instant until = now_ + length;
  ranks_[place.rank].computing.add(now_, std::min(until, ranks_[place.rank].dies));
  if (options_.keeps_times) {
    result_.times[place.rank][place.node].began = now_;
  }
  computing_.push({until.since_zero().count(), place});
}

Transfer GraphRun::transfer_of(MatchIndex match, NodePlace place) const {
  const GraphNode& node = world_.ranks[place.rank].nodes[place.node];
  Transfer transfer;
  transfer.match = match;
  transfer.bytes = node.bytes;
  transfer.is_message = !matches_.is_collective(match);
  if (transfer.is_message) {
    const bool sends = node.kind == NodeKind::kSend;
    transfer.from = sends ? place.rank : node.peer;
    transfer.to = sends ? node.peer : place.rank;
  } else {
    transfer.collective = node.collective;
    transfer.group = node.group;
    transfer.root = node.root;
  }
  return transfer;
}

void GraphRun::arrive(NodePlace place, MatchIndex match) {
  const GraphNode& node = world_.ranks[place.rank].nodes[place.node];
  const auto [entry, is_new] = open_.try_emplace(match);
  OpenTransfer& open = entry->second;
  if (is_new) {
    open.transfer = transfer_of(match, place);
  }
  open.transfer.recorded = std::max(open.transfer.recorded, base::nanoseconds(node.duration_ns));
  if (node.kind == NodeKind::kSend) {
    open.transfer.bytes = node.bytes;
    open.sender = place;
    begin_transfer(open);
    end_node(place);
    return;
  }
  open.nodes.push_back(place);
  if (node.kind == NodeKind::kReceive) {
    if (open.has_arrived) {
      end_node(place);
      open_.erase(match);
    } else if (node.peer >= world_.size() || !world_.has_trace[node.peer]) {
      begin_transfer(open);  // from a rank without a trace
    }
  } else if (open.nodes.size() >= matches_.expected(node.group)) {
    begin_transfer(open);
  }
}

void GraphRun::begin_transfer(OpenTransfer& open) {
  open.began = now_;
  open.is_moving = true;
  if (base::Status status = model_.begin(open.transfer, now_); !status.ok() && failed_.ok()) {
    failed_ = std::move(status);
  }
}

void GraphRun::end_transfer(MatchIndex match) {
  const auto found = open_.find(match);
  OpenTransfer& open = found->second;
  ++result_.transfers;
  if (options_.on_transfer) {
    options_.on_transfer(open.transfer, open.began, now_);
  }
  const bool no_receiver_waits = open.transfer.is_message && open.nodes.empty() &&
                                 open.transfer.to < world_.size() &&
                                 world_.has_trace[open.transfer.to];
  if (no_receiver_waits) {
    open.has_arrived = true;
    open.is_moving = false;
    result_.ended = std::max(result_.ended, now_);
    return;
  }
  const NodePlace last = open.nodes.empty() ? NodePlace{} : open.nodes.back();
  for (const NodePlace place : open.nodes) {
    if (open.transfer.is_message && open.sender.rank != kNowhere.rank) {
      record_predecessor(place, open.sender);
    } else if (place.rank != last.rank) {
      record_predecessor(place, last);
    }
    end_node(place);
  }
  open_.erase(found);
}

void GraphRun::record_predecessor(NodePlace place, NodePlace after) {
  if (options_.keeps_times) {
    result_.times[place.rank][place.node].after = after;
  }
}

void GraphRun::end_node(NodePlace place) {
  if (has_died(place.rank)) {
    return;
  }
  ++result_.nodes_run;
  result_.ended = std::max(result_.ended, now_);
  result_.ranks[place.rank].ended = now_;
  if (options_.keeps_times) {
    result_.times[place.rank][place.node].ended = now_;
  }
  ended_.push_back(place);
}

base::Status GraphRun::unfinished_status(bool reached_limit) const {
  const std::uint64_t all = world_.nodes();
  if (result_.nodes_run == all) {
    return {};
  }
  std::vector<MatchIndex> waiting;
  for (const auto& [match, open] : open_) {
    if (!open.is_moving && !open.has_arrived) {
      waiting.push_back(match);
    }
  }
  std::sort(waiting.begin(), waiting.end());
  std::string text =
      fmt::format("{} of {} nodes were run{}", result_.nodes_run, all,
                  reached_limit ? " when the limit was reached" : "; the rest cannot run");
  for (std::size_t i = 0; i < std::min(waiting.size(), kMaxNamedMatches); ++i) {
    text += fmt::format("\n  {}", matches_.describe(waiting[i], open_.at(waiting[i]).nodes));
  }
  if (waiting.size() > kMaxNamedMatches) {
    text += fmt::format("\n  and {} more", waiting.size() - kMaxNamedMatches);
  }
  return {reached_limit ? base::StatusCode::kTimedOut : base::StatusCode::kMismatch, text};
}

}  // namespace spillway::emulate
