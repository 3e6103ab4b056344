// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/merge.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::emulate {

base::Status RankCounter::on_rank(const RankInfo& info) {
  const std::uint32_t rank = info.rank.value_or(default_rank_);
  if (rank >= kMaxTraceRanks) {
    return base::invalid_argument(fmt::format("rank {} is beyond {}", rank, kMaxTraceRanks - 1));
  }
  ranks_ = std::max({ranks_, rank + 1, std::min(info.world.value_or(0), kMaxTraceRanks)});
  return {};
}

JobMerger::JobMerger(const std::vector<std::uint32_t>& ranks, MergeOrder order, NodeSink& out)
    : places_(ranks.size()), out_(out) {
  if (order == MergeOrder::kBehind) {
    for (std::size_t job = 0; job < ranks.size(); ++job) {
      for (std::uint32_t rank = 0; rank < ranks[job]; ++rank) {
        places_[job].push_back(world_++);
      }
    }
    return;
  }
  const std::uint32_t most = ranks.empty() ? 0 : *std::ranges::max_element(ranks);
  for (std::uint32_t rank = 0; rank < most; ++rank) {
    for (std::size_t job = 0; job < ranks.size(); ++job) {
      if (rank < ranks[job]) {
        places_[job].push_back(world_++);
      }
    }
  }
}

void JobMerger::set_source(std::size_t job, std::uint32_t rank) {
  job_ = job;
  default_rank_ = rank;
}

base::Result<std::uint32_t> JobMerger::place_of(std::uint32_t rank) const {
  if (rank >= places_[job_].size()) {
    return base::invalid_argument(
        fmt::format("rank {} of a job of {}", rank, places_[job_].size()));
  }
  return places_[job_][rank];
}

std::string JobMerger::name_of(const std::string& group) const {
  return fmt::format("{}/{}", job_, group);
}

base::Status JobMerger::on_rank(const RankInfo& info) {
  const base::Result<std::uint32_t> place = place_of(info.rank.value_or(default_rank_));
  if (!place.ok()) {
    return place.status();
  }
  RankInfo moved{.version = info.version, .rank = *place, .world = world_, .groups = {}};
  std::vector<std::uint32_t> all = places_[job_];
  std::ranges::sort(all);
  moved.groups.push_back({name_of(""), std::move(all)});
  for (const GroupInfo& group : info.groups) {
    GroupInfo& made = moved.groups.emplace_back(GroupInfo{name_of(group.name), {}});
    for (const std::uint32_t rank : group.ranks) {
      const base::Result<std::uint32_t> member = place_of(rank);
      if (!member.ok()) {
        return member.status();
      }
      made.ranks.push_back(*member);
    }
  }
  return out_.on_rank(moved);
}

base::Status JobMerger::on_node(const Node& node) {
  node_ = node;
  if (node.kind == NodeKind::kCollective) {
    node_.group = name_of(node.group);
    const base::Result<std::uint32_t> root = place_of(node.root);
    if (!root.ok()) {
      return root.status();
    }
    node_.root = *root;
  }
  if (node.peer) {
    const base::Result<std::uint32_t> peer = place_of(*node.peer);
    if (!peer.ok()) {
      return peer.status();
    }
    node_.peer = *peer;
  }
  return out_.on_node(node_);
}

}  // namespace spillway::emulate
