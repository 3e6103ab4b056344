// SPDX-License-Identifier: Apache-2.0
//
// Links that loads share, as rates and not as packets. A load is what moves together: a message
// over its path, or all flows of a collective at once. It uses each of its links with a weight, the
// number of its flows that cross the link, and has one rate: every flow of it moves so many bytes a
// nanosecond. A ring's neighbours pass on what they got, so one rate is how its flows move; where
// every rank sends to every other it is an approximation that ends when the slowest flow does.
//
// Rates are max-min fair: no load can have more without another, which has no more than it, having
// less. They change only when a load begins or ends, and then only for loads that share links with
// it, directly or over others: those are found and shared out anew by progressive filling, the
// fullest link first. All that begins and ends at one time is shared out once.
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

  // Bytes per nanosecond of each link, all above zero.
  explicit FlowNetwork(std::vector<double> capacities);

  // `bytes` of each flow, from now on. The uses outlive the load and name no link twice; a load
  // without any ends at once.
  LoadId begin(std::span<const LinkUse> uses, double bytes);
  bool has_open() const { return open_ > 0; }
  // When the next load ends, if none begins before; there must be an open one.
  base::Instant next_end();
  // Moves time on, not beyond next_end(), and appends the loads that end then, in the order in
  // which they began. Their ids may be used again.
  void advance(base::Instant to, std::vector<LoadId>& ended);

  double rate(LoadId load) const { return loads_[load].rate; }  // after next_end()
  std::uint64_t events() const { return events_; }              // rates that were set

 private:
  struct Load {
    std::span<const LinkUse> uses;
    double left = 0.0;  // bytes at `since`
    double rate = 0.0;
    std::int64_t since = 0;
    std::uint64_t order = 0;    // in which loads began
    std::uint64_t version = 0;  // of its end among ends_
    std::uint64_t stamp = 0;    // of the last sharing out that saw it
    bool is_open = false;
    bool is_settled = false;  // its new rate is known
  };
  struct Link {
    double capacity = 0.0;
    double room = 0.0;    // while rates are shared out: what nobody has yet,
    double weight = 0.0;  // and flows that still want of it
    std::uint32_t wanting = 0;
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

  void touch(const Load& load);
  void share_out();
  void gather(std::vector<LoadId>& loads, std::vector<std::uint32_t>& links);
  void fill(const std::vector<std::uint32_t>& links);
  void give(LoadId id, double rate);
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
