// SPDX-License-Identifier: Apache-2.0
//
// When ranks that nobody runs come to a collective of a staged world (stage.h).
//
// Most are like the real ones. How far real ranks come apart is learned, for each group, kind and
// size: of the last kRemembered arrivals, by how much each was off the mean of its collective (a
// mean of K ranks hides a share of 1/K, which is put back). Their spread is taken from the median
// of these, so that a slow start does not count, and the latest of V virtual ranks is the quantile
// u^(1/V) of a normal distribution with that spread; u is drawn by seed, group and sequence: the
// same run, the same draws. With one real rank nothing is learned, and all come when it does.
//
// A slow rank (SlowRank) takes `factor` of the time that the first real rank computes, and falls
// behind by the difference. Whenever that rank is blocked, the slow one catches up, as it has to
// wait for the same: waits and calls of the first real rank are told in their order. What a slow
// rank holds up beyond the groups that it shares with real ranks is not followed.
//
// Pure; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"

namespace spillway::emulate {

// By how much the ranks of one group come apart.
class SpreadProfile {
 public:
  static constexpr std::size_t kRemembered = 64;
  static constexpr std::size_t kLeast = 8;  // with fewer, all come with the mean

  // Real arrivals at one collective; their mean.
  base::Instant learn(std::span<const base::Instant> arrivals);
  // How much later than the mean the last of `ranks` comes; `unit` is from 0 to 1.
  base::Duration latest_of(std::uint64_t ranks, double unit) const;

 private:
  std::deque<double> off_;  // nanoseconds, below zero as well
};

// The quantile of the standard normal distribution, 0 < p < 1.
double normal_quantile(double p);

struct SlowRank {
  std::uint32_t rank = 0;
  double factor = 1.0;
};

// How far slow ranks are behind the first real rank.
class SlowRanks {
 public:
  explicit SlowRanks(std::vector<SlowRank> ranks);

  // Of the first real rank, in their order.
  void computed_until(base::Instant at);
  void waited(base::Instant began, base::Instant ended);
  // Of those among `ranks` (ascending) the furthest; nothing where none is.
  std::optional<base::Duration> furthest_behind(const std::vector<std::uint32_t>& ranks) const;

 private:
  struct Behind {
    SlowRank slow;
    double lag_ns = 0.0;
  };
  std::vector<Behind> ranks_;
  std::optional<base::Instant> seen_;
};

}  // namespace spillway::emulate
