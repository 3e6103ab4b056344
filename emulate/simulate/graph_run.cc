// SPDX-License-Identifier: Apache-2.0
#include "emulate/simulate/graph_run.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::emulate {
namespace {

constexpr std::size_t kMostNamed = 8;  // meetings that an error names

}  // namespace

GraphRun::GraphRun(const World& world, const Meetings& meetings, CommunicationModel& model,
                   const GraphRunOptions& options)
    : world_(world), meetings_(meetings), model_(model), options_(options), ranks_(world.size()) {
  dependents_.reserve(world.size());
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
    dependents_.emplace_back(world.ranks[rank]);
    ranks_[rank].left = dependency_counts(world.ranks[rank]);
    if (options.keeps_times) {
      result_.times.emplace_back(world.ranks[rank].nodes.size());
    }
  }
  for (const RankTrouble& trouble : options.troubles) {
    if (trouble.rank < ranks_.size()) {
      ranks_[trouble.rank].factor = trouble.factor;
      ranks_[trouble.rank].dies = trouble.dies;
    }
  }
  result_.ranks.resize(world.size());
}

// The graph does not contain such a dependency: its edges connect different nodes.
base::Status GraphRun::find_self_dependency() const {
  for (const RankGraph& rank : world_.ranks) {
    if (!rank.first_own.empty()) {
      return {base::StatusCode::kMalformed,
              fmt::format("{}: node {} depends on itself and can never begin; `spillway emulate "
                          "lint` names all such nodes",
                          rank.source, rank.first_own.front().node)};
    }
  }
  return {};
}

GraphRunResult GraphRun::run() {
  failed_ = find_self_dependency();
  if (failed_.ok()) {
    begin_all();
    settle();
  }
  const base::Instant limit{options_.limit};
  while (failed_.ok() && now_ <= limit && (!computing_.empty() || model_.has_open())) {
    step();
  }
  result_.status = failed_.ok() ? what_is_left(now_ > limit) : failed_;
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

// Advances to the next time at which something ends, and handles all that ends then.
void GraphRun::step() {
  const base::Instant limit = computing_.empty()
                                  ? base::Instant(options_.limit + base::nanoseconds(1))
                                  : base::Instant(base::nanoseconds(computing_.top().at));
  ended_transfers_.clear();
  now_ = model_.has_open() ? model_.advance(limit, ended_transfers_) : limit;
  for (const MeetingIndex meeting : ended_transfers_) {
    end_transfer(meeting);
  }
  while (!computing_.empty() && computing_.top().at <= now_.since_zero().count()) {
    const NodePlace place = computing_.top().place;
    computing_.pop();
    if (has_died(place.rank)) {
      continue;
    }
    Lane& lane = lane_of(place);
    lane.is_busy = false;
    end_node(place);
    start_lane(place.rank, lane, place);
  }
  settle();
}

// A send may end a node at once, so this repeats until nothing changes.
void GraphRun::settle() {
  while (!ended_.empty() && failed_.ok()) {
    const std::vector<NodePlace> ended = std::move(ended_);
    ended_.clear();
    for (const NodePlace place : ended) {
      for (const NodeIndex waiter : dependents_[place.rank].of(place.node)) {
        if (--ranks_[place.rank].left[waiter] == 0) {
          note_what_it_waited_for({place.rank, waiter}, place);
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
  const MeetingIndex meeting = meetings_.of(place.rank, place.node);
  if (meeting != kNoMeeting) {
    if (options_.keeps_times) {
      result_.times[place.rank][place.node].began = now_;
    }
    come(place, meeting);
    return;
  }
  Lane& lane = lane_of(place);
  lane.waiting.push_back(place.node);
  if (!lane.is_busy) {
    start_lane(place.rank, lane, kNowhere);
  }
}

GraphRun::Lane& GraphRun::lane_of(NodePlace place) {
  const GraphNode& node = world_.ranks[place.rank].nodes[place.node];
  return node.on_host ? ranks_[place.rank].host : ranks_[place.rank].device;
}

void GraphRun::start_lane(std::uint32_t rank, Lane& lane, NodePlace before) {
  if (lane.waiting.empty() || has_died(rank)) {
    return;
  }
  const NodeIndex node = lane.waiting.front();
  lane.waiting.pop_front();
  lane.is_busy = true;
  if (before.rank != kNowhere.rank) {
    note_what_it_waited_for({rank, node}, before);
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

Transfer GraphRun::transfer_of(MeetingIndex meeting, NodePlace place) const {
  const GraphNode& node = world_.ranks[place.rank].nodes[place.node];
  Transfer transfer;
  transfer.meeting = meeting;
  transfer.bytes = node.bytes;
  transfer.is_message = !meetings_.is_collective(meeting);
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

void GraphRun::come(NodePlace place, MeetingIndex meeting) {
  const GraphNode& node = world_.ranks[place.rank].nodes[place.node];
  const auto [entry, is_new] = open_.try_emplace(meeting);
  OpenTransfer& open = entry->second;
  if (is_new) {
    open.transfer = transfer_of(meeting, place);
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
    if (open.has_come) {
      end_node(place);
      open_.erase(meeting);
    } else if (node.peer >= world_.size() || !world_.has_trace[node.peer]) {
      begin_transfer(open);  // from a rank without a trace
    }
  } else if (open.nodes.size() >= meetings_.expected(node.group)) {
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

void GraphRun::end_transfer(MeetingIndex meeting) {
  const auto found = open_.find(meeting);
  OpenTransfer& open = found->second;
  ++result_.transfers;
  if (options_.on_transfer) {
    options_.on_transfer(open.transfer, open.began, now_);
  }
  const bool nobody_waits = open.transfer.is_message && open.nodes.empty() &&
                            open.transfer.to < world_.size() && world_.has_trace[open.transfer.to];
  if (nobody_waits) {
    open.has_come = true;
    open.is_moving = false;
    result_.ended = std::max(result_.ended, now_);
    return;
  }
  const NodePlace last = open.nodes.empty() ? NodePlace{} : open.nodes.back();
  for (const NodePlace place : open.nodes) {
    if (open.transfer.is_message && open.sender.rank != kNowhere.rank) {
      note_what_it_waited_for(place, open.sender);
    } else if (place.rank != last.rank) {
      note_what_it_waited_for(place, last);
    }
    end_node(place);
  }
  open_.erase(found);
}

void GraphRun::note_what_it_waited_for(NodePlace place, NodePlace after) {
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

base::Status GraphRun::what_is_left(bool reached_limit) const {
  const std::uint64_t all = world_.nodes();
  if (result_.nodes_run == all) {
    return {};
  }
  std::vector<MeetingIndex> waiting;
  for (const auto& [meeting, open] : open_) {
    if (!open.is_moving && !open.has_come) {
      waiting.push_back(meeting);
    }
  }
  std::sort(waiting.begin(), waiting.end());
  std::string text = fmt::format("{} of {} nodes were run{}", result_.nodes_run, all,
                                 reached_limit ? " when the limit came" : "; the rest cannot be");
  for (std::size_t i = 0; i < std::min(waiting.size(), kMostNamed); ++i) {
    text += fmt::format("\n  {}", meetings_.describe(waiting[i], open_.at(waiting[i]).nodes));
  }
  if (waiting.size() > kMostNamed) {
    text += fmt::format("\n  and {} more", waiting.size() - kMostNamed);
  }
  return {reached_limit ? base::StatusCode::kTimedOut : base::StatusCode::kMismatch, text};
}

std::vector<NodePlace> critical_path(const GraphRunResult& result) {
  std::vector<NodePlace> path;
  NodePlace at = kNowhere;
  base::Instant latest{};
  for (std::uint32_t rank = 0; rank < result.times.size(); ++rank) {
    for (NodeIndex node = 0; node < result.times[rank].size(); ++node) {
      if (result.times[rank][node].ended > latest || at.rank == kNowhere.rank) {
        latest = result.times[rank][node].ended;
        at = {rank, node};
      }
    }
  }
  while (at.rank != kNowhere.rank) {
    path.push_back(at);
    at = result.times[at.rank][at.node].after;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace spillway::emulate
