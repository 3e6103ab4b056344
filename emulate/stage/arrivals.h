// SPDX-License-Identifier: Apache-2.0
//
// When virtual ranks arrive at a collective of a staged world (stage.h).
//
// Most are like the real ones. The stage learns how far apart real ranks arrive, per group, kind
// and size. It keeps the offsets of the last kRemembered arrivals from the mean of their
// collective. A mean of K ranks hides 1/K of the variance, which is added back. The spread follows
// from the median of these offsets, so that a slow start does not count. The latest of V virtual
// ranks is the quantile u^(1/V) of a normal distribution with that spread. u is drawn from seed,
// group and sequence, so the same run gives the same draws. With one real rank nothing is learned,
// and all arrive when it does.
//
// A slow rank (SlowRank) takes `factor` times as long as the first real rank computes, and falls
// behind by the difference. Whenever that rank is blocked, the slow one catches up, because it
// would wait for the same. The first real rank's waits and calls must be reported in order. Delays
// that a slow rank causes outside the groups it shares with real ranks are not modelled.
//
// Pure; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/simulate/graph_run.h"
#include "emulate/trace/graph.h"

namespace spillway::emulate {

// How far apart the ranks of one group arrive.
class SpreadProfile {
 public:
  static constexpr std::size_t kRemembered = 64;
  static constexpr std::size_t kLeast = 8;  // with fewer, all arrive at the mean

  // Learns the real arrivals at one collective and returns their mean.
  base::Instant learn(std::span<const base::Instant> arrivals);
  // How much later than the mean the last of `ranks` arrives; `unit` is from 0 to 1.
  base::Duration latest_of(std::uint64_t ranks, double unit) const;

 private:
  std::deque<double> off_;  // nanoseconds; may be negative
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

  // Calls and waits of the first real rank, in order.
  void computed_until(base::Instant at);
  void waited(base::Instant began, base::Instant ended);
  // The largest lag among `ranks` (ascending); nothing if none of them is slow.
  std::optional<base::Duration> furthest_behind(const std::vector<std::uint32_t>& ranks) const;

 private:
  struct Behind {
    SlowRank slow;
    double lag_ns = 0.0;
  };
  std::vector<Behind> ranks_;
  std::optional<base::Instant> seen_;
};

// When virtual ranks of a staged world (stage.h) arrive, according to a trace of the job that was
// recorded or synthesized from a model. The trace runs in virtual time on the stage's network. It
// gives how much later virtual ranks come than real ones:
//
//   a collective   the last virtual member after the mean of the real ones; by members, kind and
//                  bytes, in order
//   a message      when a virtual rank sends, after the real one asks for it; by both ends, in
//                  order
//
// Each order starts again at its end, so a trace of one step serves for all. The trace says nothing
// about calls that it lacks (other sizes, other groups).
//
// Immutable; any thread.

class TraceArrivals {
 public:
  // The run must have kept the times of all nodes; `real` is ascending.
  TraceArrivals(const World& world, const GraphRunResult& run,
                const std::vector<std::uint32_t>& real);

  // For the n-th such collective of the group.
  std::optional<base::Duration> behind(const std::vector<std::uint32_t>& ranks, CollectiveKind kind,
                                       std::uint64_t bytes, std::uint64_t n) const;
  // For the n-th message between the two; negative if it is sent before it is asked for.
  std::optional<base::Duration> sent_behind(std::uint32_t from, std::uint32_t to,
                                            std::uint64_t n) const;
  std::size_t collectives() const { return collectives_.size(); }  // different ones
  std::size_t channels() const { return messages_.size(); }

 private:
  using Shape = std::tuple<std::vector<std::uint32_t>, CollectiveKind, std::uint64_t>;
  using Ends = std::pair<std::uint32_t, std::uint32_t>;

  void take_collectives(const World& world, const GraphRunResult& run,
                        const std::vector<std::uint32_t>& real);
  void take_messages(const World& world, const GraphRunResult& run,
                     const std::vector<std::uint32_t>& real);

  std::map<Shape, std::vector<base::Duration>> collectives_;
  std::map<Ends, std::vector<base::Duration>> messages_;
};

}  // namespace spillway::emulate
