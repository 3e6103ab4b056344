// SPDX-License-Identifier: Apache-2.0
//
// Models links shared by loads, as rates instead of packets. A load is a unit that moves together:
// a message over its path, or all flows of a collective. Its weight on a link is the number of its
// flows that cross the link. All flows of a load have the same rate, in bytes per nanosecond. This
// is exact for a ring, because neighbours pass on what they received. If every rank sends to every
// other, it is an approximation that ends with the slowest flow.
//
// Rates are max-min fair: no load's rate can grow without shrinking a rate that is not larger.
// Rates change only when a load begins or ends, and only for loads that share links with it,
// directly or through others. Progressive filling computes these again, the fullest link first. All
// loads that begin and end at one time cause a single computation.
//
// Deterministic: the same calls in the same order give the same times. One thread. Times are whole
// nanoseconds, rounded up.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <vector>

#include "base/units.h"

namespace spillway::emulate {

struct LinkUse {
  std::uint32_t link = 0;
  double weight = 1.0;
};

class FlowNetwork {
 public:
  using LoadId = std::uint32_t;

  // `capacities`: bytes per nanosecond of each link, all above zero.
  explicit FlowNetwork(std::vector<double> capacities);

  // Begins a load now; each of its flows moves `bytes`. The uses must outlive the load and name no
  // link twice; a load without uses ends at once.
  LoadId begin(std::span<const LinkUse> uses, double bytes);
  bool has_open() const { return open_ > 0; }
  // When the next load ends if none begins before. There must be an open load.
  base::Instant next_end();
  // Advances time, at most to next_end(), and appends the loads that end then, in the order in
  // which they began. Their ids may be reused.
  void advance(base::Instant to, std::vector<LoadId>& ended);

  double rate(LoadId load) const { return loads_[load].rate; }  // valid after next_end()
  std::uint64_t events() const { return events_; }              // rates that were set

 private:
  struct Load {
    std::span<const LinkUse> uses;
    double left = 0.0;  // bytes at `since`
    double rate = 0.0;
    std::int64_t since = 0;
    std::uint64_t order = 0;    // order in which loads began
    std::uint64_t version = 0;  // version of its current end in ends_
    std::uint64_t stamp = 0;    // of the last computation that saw it
    bool is_open = false;
    bool is_settled = false;  // its new rate is known
  };
  struct Link {
    double capacity = 0.0;
    double room = 0.0;    // during a computation: capacity not assigned yet
    double weight = 0.0;  // during a computation: flows without a rate
    std::uint32_t unassigned = 0;
    std::uint64_t stamp = 0;
    bool is_dirty = false;
    std::vector<LoadId> loads;
  };
  struct End {
    std::int64_t at = 0;
    std::uint64_t order = 0;
    LoadId load = 0;
    std::uint64_t version = 0;
    bool operator>(const End& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  struct Share {
    double rate = 0.0;
    std::uint32_t link = 0;
    bool operator>(const Share& other) const {
      return rate != other.rate ? rate > other.rate : link > other.link;
    }
  };
  template <typename T>
  using LeastFirst = std::priority_queue<T, std::vector<T>, std::greater<>>;

  void mark_dirty(const Load& load);
  void recompute_rates();
  void collect_affected(std::vector<LoadId>& loads, std::vector<std::uint32_t>& links);
  void assign_rates(const std::vector<std::uint32_t>& links);
  void set_rate(LoadId id, double rate);
  void drop_stale_ends();

  std::vector<Link> links_;
  std::vector<Load> loads_;
  std::vector<LoadId> free_;
  std::vector<std::uint32_t> dirty_;
  std::vector<LoadId> found_loads_;
  std::vector<std::uint32_t> found_links_;
  LeastFirst<End> ends_;
  std::int64_t now_ = 0;
  std::uint64_t order_ = 0;
  std::uint64_t stamp_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t open_ = 0;
};

}  // namespace spillway::emulate
