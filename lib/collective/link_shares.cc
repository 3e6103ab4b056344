// SPDX-License-Identifier: Apache-2.0
#include "collective/link_shares.h"

#include <algorithm>
#include <vector>

namespace spillway::collective {

namespace {

// Shares move if their time is more than this many times the best.
constexpr double kWorthMoving = 1.05;
// Equal shares are used if their time is at most this many times the best.
constexpr double kGoodEnough = 1.03;

double capacity(std::uint64_t told) {
  return static_cast<double>(std::clamp<std::uint64_t>(told, 1, kMaxCapacity));
}

double share_of(const Shares& shares, std::size_t ranks, std::size_t rank) {
  if (shares.are_equal()) {
    return 1.0 / static_cast<double>(ranks);
  }
  return static_cast<double>(shares.end_of(rank) - shares.begin_of(rank)) / Shares::kWhole;
}

// The time that all links take which own something: first all of them do, then all but those for
// which it is too short.
double common_time(Capacities capacities) {
  const double others = static_cast<double>(capacities.size()) - 2.0;
  std::vector<bool> owns(capacities.size(), true);
  while (true) {
    double owners = 0.0;
    double sum = 0.0;
    for (std::size_t rank = 0; rank < capacities.size(); ++rank) {
      owners += owns[rank] ? 1.0 : 0.0;
      sum += owns[rank] ? capacity(capacities[rank]) : 0.0;
    }
    const double time = (others + owners) / sum;
    bool is_enough = true;
    for (std::size_t rank = 0; rank < capacities.size(); ++rank) {
      if (owns[rank] && time * capacity(capacities[rank]) < 1.0) {
        owns[rank] = false;
        is_enough = false;
      }
    }
    if (is_enough) {
      return time;
    }
  }
}

}  // namespace

double exchange_time(const Shares& shares, Capacities capacities) {
  const double others = static_cast<double>(capacities.size()) - 2.0;
  double longest = 0.0;
  for (std::size_t rank = 0; rank < capacities.size(); ++rank) {
    const double load = 1.0 + others * share_of(shares, capacities.size(), rank);
    longest = std::max(longest, load / capacity(capacities[rank]));
  }
  return longest;
}

// Shares are rounded down, and the largest one gets what is left over: it matters least there.
Shares best_shares(Capacities capacities) {
  const std::size_t ranks = capacities.size();
  if (ranks < 3) {
    return {};
  }
  const double others = static_cast<double>(ranks) - 2.0;
  const double time = common_time(capacities);
  std::vector<std::uint32_t> weights(ranks);
  std::uint32_t given = 0;
  std::size_t largest = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const double share = (time * capacity(capacities[rank]) - 1.0) / others;
    weights[rank] = static_cast<std::uint32_t>(std::clamp(share, 0.0, 1.0) * Shares::kWhole);
    weights[rank] = std::min(weights[rank], Shares::kWhole - given);
    given += weights[rank];
    largest = weights[rank] > weights[largest] ? rank : largest;
  }
  weights[largest] += Shares::kWhole - given;
  return Shares(weights);
}

Shares next_shares(const Shares& current, Capacities capacities) {
  const bool is_unwanted = std::any_of(capacities.begin(), capacities.end(),
                                       [](std::uint64_t capacity) { return capacity == 0; });
  if (is_unwanted) {
    return {};
  }
  const Shares best = best_shares(capacities);
  const double least = exchange_time(best, capacities);
  if (exchange_time({}, capacities) <= least * kGoodEnough) {
    return {};
  }
  return exchange_time(current, capacities) <= least * kWorthMoving ? current : best;
}

}  // namespace spillway::collective
