// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/arrivals.h"

#include <algorithm>
#include <cmath>

namespace spillway::emulate {

namespace {

constexpr double kMedianOfNormal = 0.67449;  // median magnitude of a standard normal number
constexpr double kLeastUnit = 1e-6;
constexpr double kMaxSpreads = 8.0;

}  // namespace

base::Instant SpreadProfile::learn(std::span<const base::Instant> arrivals) {
  double sum = 0.0;
  for (const base::Instant at : arrivals) {
    sum += static_cast<double>((at - arrivals.front()).count());
  }
  const auto count = static_cast<double>(arrivals.size());
  const double mean = sum / count;
  if (arrivals.size() > 1) {
    const double hidden = std::sqrt(count / (count - 1.0));
    for (const base::Instant at : arrivals) {
      off_.push_back(hidden * (static_cast<double>((at - arrivals.front()).count()) - mean));
    }
    while (off_.size() > kRemembered) {
      off_.pop_front();
    }
  }
  return arrivals.front() + base::nanoseconds(static_cast<std::int64_t>(mean));
}

base::Duration SpreadProfile::latest_of(std::uint64_t ranks, double unit) const {
  if (off_.size() < kLeast || ranks == 0) {
    return {};
  }
  std::vector<double> sizes;
  for (const double off : off_) {
    sizes.push_back(std::abs(off));
  }
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::nth_element(sizes.begin(), middle, sizes.end());
  const double spread = *middle / kMedianOfNormal;
  const double drawn = std::clamp(unit, kLeastUnit, 1.0 - kLeastUnit);
  const double quantile = std::pow(drawn, 1.0 / static_cast<double>(ranks));
  return base::nanoseconds(static_cast<std::int64_t>(spread * normal_quantile(quantile)));
}

// Bisects the library's distribution function; 60 steps give full precision.
double normal_quantile(double p) {
  double low = -kMaxSpreads;
  double high = kMaxSpreads;
  for (int step = 0; step < 60; ++step) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

SlowRanks::SlowRanks(std::vector<SlowRank> ranks) {
  for (const SlowRank& slow : ranks) {
    ranks_.push_back({slow, 0.0});
  }
}

void SlowRanks::computed_until(base::Instant at) {
  if (seen_ && at > *seen_) {
    const auto computed = static_cast<double>((at - *seen_).count());
    for (Behind& behind : ranks_) {
      behind.lag_ns = std::max(0.0, behind.lag_ns + (behind.slow.factor - 1.0) * computed);
    }
  }
  seen_ = seen_ ? std::max(*seen_, at) : at;
}

void SlowRanks::waited(base::Instant began, base::Instant ended) {
  computed_until(began);
  // Two threads may report one wait; it counts once.
  const base::Instant from = std::max(began, *seen_);
  if (ended <= from) {
    return;
  }
  for (Behind& behind : ranks_) {
    behind.lag_ns = std::max(0.0, behind.lag_ns - static_cast<double>((ended - from).count()));
  }
  seen_ = ended;
}

std::optional<base::Duration> SlowRanks::furthest_behind(
    const std::vector<std::uint32_t>& ranks) const {
  std::optional<base::Duration> furthest;
  for (const Behind& behind : ranks_) {
    if (std::binary_search(ranks.begin(), ranks.end(), behind.slow.rank)) {
      const auto lag = base::nanoseconds(static_cast<std::int64_t>(behind.lag_ns));
      furthest = std::max(furthest.value_or(lag), lag);
    }
  }
  return furthest;
}

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
