// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/trace_arrivals.h"

#include <algorithm>

namespace spillway::emulate {
namespace {

bool is_one_of(const std::vector<std::uint32_t>& ranks, std::uint32_t rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

// The members' arrivals at one collective of a group.
struct Arrivals {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::uint64_t bytes = 0;
  std::int64_t real_sum = 0;
  std::int64_t real_count = 0;
  std::int64_t latest_virtual = INT64_MIN;
};

}  // namespace

TraceArrivals::TraceArrivals(const World& world, const GraphRunResult& run,
                             const std::vector<std::uint32_t>& real) {
  take_collectives(world, run, real);
  take_messages(world, run, real);
}

void TraceArrivals::take_collectives(const World& world, const GraphRunResult& run,
                                     const std::vector<std::uint32_t>& real) {
  // The collectives of each group in order.
  std::vector<std::vector<Arrivals>> by_group(world.groups.size());
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
    std::map<std::uint32_t, std::size_t> sequence;  // by group
    for (NodeIndex index = 0; index < world.ranks[rank].nodes.size(); ++index) {
      const GraphNode& node = world.ranks[rank].nodes[index];
      if (node.kind != NodeKind::kCollective || !node.is_complete()) {
        continue;
      }
      const std::size_t at = sequence[node.group]++;
      std::vector<Arrivals>& group = by_group[node.group];
      group.resize(std::max(group.size(), at + 1));
      const std::int64_t came = run.times[rank][index].began.since_zero().count();
      group[at].kind = node.collective;
      group[at].bytes = node.bytes;
      if (is_one_of(real, rank)) {
        group[at].real_sum += came;
        ++group[at].real_count;
      } else {
        group[at].latest_virtual = std::max(group[at].latest_virtual, came);
      }
    }
  }
  for (std::size_t group = 0; group < by_group.size(); ++group) {
    for (const Arrivals& each : by_group[group]) {
      if (each.real_count > 0 && each.latest_virtual != INT64_MIN) {
        collectives_[{world.groups[group].ranks, each.kind, each.bytes}].push_back(
            base::nanoseconds(each.latest_virtual - each.real_sum / each.real_count));
      }
    }
  }
}

void TraceArrivals::take_messages(const World& world, const GraphRunResult& run,
                                  const std::vector<std::uint32_t>& real) {
  std::map<Ends, std::vector<base::Instant>> sent;
  std::map<Ends, std::vector<base::Instant>> asked;
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
    const bool is_real = is_one_of(real, rank);
    for (NodeIndex index = 0; index < world.ranks[rank].nodes.size(); ++index) {
      const GraphNode& node = world.ranks[rank].nodes[index];
      if (!node.moves_data()) {
        continue;
      }
      if (node.kind == NodeKind::kSend && !is_real && is_one_of(real, node.peer)) {
        sent[{rank, node.peer}].push_back(run.times[rank][index].began);
      } else if (node.kind == NodeKind::kReceive && is_real && !is_one_of(real, node.peer)) {
        asked[{node.peer, rank}].push_back(run.times[rank][index].began);
      }
    }
  }
  for (const auto& [ends, times] : sent) {
    const std::vector<base::Instant>& wanted = asked[ends];
    for (std::size_t i = 0; i < std::min(times.size(), wanted.size()); ++i) {
      messages_[ends].push_back(times[i] - wanted[i]);
    }
  }
}

std::optional<base::Duration> TraceArrivals::behind(const std::vector<std::uint32_t>& ranks,
                                                    CollectiveKind kind, std::uint64_t bytes,
                                                    std::uint64_t n) const {
  const auto found = collectives_.find({ranks, kind, bytes});
  return found == collectives_.end() ? std::nullopt
                                     : std::optional(found->second[n % found->second.size()]);
}

std::optional<base::Duration> TraceArrivals::sent_behind(std::uint32_t from, std::uint32_t to,
                                                         std::uint64_t n) const {
  const auto found = messages_.find({from, to});
  return found == messages_.end() ? std::nullopt
                                  : std::optional(found->second[n % found->second.size()]);
}

}  // namespace spillway::emulate
