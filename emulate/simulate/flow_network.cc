// SPDX-License-Identifier: Apache-2.0
#include "emulate/simulate/flow_network.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace spillway::emulate {
namespace {

// Equal loads end together although their rates differ in the last bit.
constexpr double kSlackNs = 1e-3;
constexpr double kSameRate = 1e-12;
constexpr double kLongest = 4e18;

std::int64_t time_after(std::int64_t now, double nanoseconds) {
  const double length = std::ceil(std::max(0.0, nanoseconds - kSlackNs));
  return length < kLongest - static_cast<double>(now) ? now + static_cast<std::int64_t>(length)
                                                      : static_cast<std::int64_t>(kLongest);
}

}  // namespace

FlowNetwork::FlowNetwork(std::vector<double> capacities) : links_(capacities.size()) {
  for (std::size_t i = 0; i < capacities.size(); ++i) {
    SPILLWAY_CHECK(capacities[i] > 0.0);
    links_[i].capacity = capacities[i];
  }
}

void FlowNetwork::mark_dirty(const Load& load) {
  for (const LinkUse& use : load.uses) {
    if (!links_[use.link].is_dirty) {
      links_[use.link].is_dirty = true;
      dirty_.push_back(use.link);
    }
  }
}

FlowNetwork::LoadId FlowNetwork::begin(std::span<const LinkUse> uses, double bytes) {
  LoadId id = 0;
  if (free_.empty()) {
    id = static_cast<LoadId>(loads_.size());
    loads_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  Load& load = loads_[id];
  const std::uint64_t version = load.version + 1;
  load = Load();
  load.uses = uses;
  load.left = bytes;
  load.since = now_;
  load.order = order_++;
  load.version = version;
  load.is_open = true;
  ++open_;
  for (const LinkUse& use : uses) {
    links_[use.link].loads.push_back(id);
  }
  mark_dirty(load);
  if (uses.empty() || bytes <= 0.0) {
    ends_.push({now_, load.order, id, load.version});
  }
  return id;
}

base::Instant FlowNetwork::next_end() {
  if (!dirty_.empty()) {
    recompute_rates();
  }
  drop_stale_ends();
  SPILLWAY_CHECK(!ends_.empty());
  return base::Instant(base::nanoseconds(ends_.top().at));
}

void FlowNetwork::drop_stale_ends() {
  while (!ends_.empty() && (!loads_[ends_.top().load].is_open ||
                            loads_[ends_.top().load].version != ends_.top().version)) {
    ends_.pop();
  }
}

void FlowNetwork::advance(base::Instant to, std::vector<LoadId>& ended) {
  now_ = to.since_zero().count();
  for (drop_stale_ends(); !ends_.empty() && ends_.top().at <= now_; drop_stale_ends()) {
    const LoadId id = ends_.top().load;
    ends_.pop();
    Load& load = loads_[id];
    load.is_open = false;
    --open_;
    for (const LinkUse& use : load.uses) {
      std::vector<LoadId>& list = links_[use.link].loads;
      const auto found = std::find(list.begin(), list.end(), id);
      *found = list.back();
      list.pop_back();
    }
    mark_dirty(load);
    free_.push_back(id);
    ended.push_back(id);
  }
}

void FlowNetwork::recompute_rates() {
  found_loads_.clear();
  found_links_.clear();
  collect_affected(found_loads_, found_links_);
  assign_rates(found_links_);
  for (const std::uint32_t link : dirty_) {
    links_[link].is_dirty = false;
  }
  dirty_.clear();
}

// Finds all loads and links connected to the dirty links by sharing.
void FlowNetwork::collect_affected(std::vector<LoadId>& loads, std::vector<std::uint32_t>& links) {
  ++stamp_;
  const auto add_link = [&](std::uint32_t index) {
    Link& link = links_[index];
    if (link.stamp != stamp_) {
      link.stamp = stamp_;
      link.room = link.capacity;
      link.weight = 0.0;
      link.unassigned = 0;
      links.push_back(index);
    }
  };
  for (const std::uint32_t link : dirty_) {
    add_link(link);
  }
  for (std::size_t next = 0; next < links.size(); ++next) {
    for (const LoadId id : links_[links[next]].loads) {
      Load& load = loads_[id];
      if (load.stamp == stamp_) {
        continue;
      }
      load.stamp = stamp_;
      load.is_settled = false;
      loads.push_back(id);
      for (const LinkUse& use : load.uses) {
        add_link(use.link);
        links_[use.link].weight += use.weight;
        ++links_[use.link].unassigned;
      }
    }
  }
}

void FlowNetwork::assign_rates(const std::vector<std::uint32_t>& links) {
  std::vector<Share> first;
  first.reserve(links.size());
  for (const std::uint32_t link : links) {
    if (links_[link].unassigned > 0) {
      first.push_back({links_[link].room / links_[link].weight, link});
    }
  }
  LeastFirst<Share> shares(std::greater<>(), std::move(first));
  while (!shares.empty()) {
    const Share share = shares.top();
    shares.pop();
    const Link& link = links_[share.link];
    if (link.unassigned == 0) {
      continue;
    }
    const double now = link.room / link.weight;
    if (now > share.rate * (1.0 + kSameRate)) {
      shares.push({now, share.link});  // other links have left room since
      continue;
    }
    for (const LoadId id : link.loads) {
      if (!loads_[id].is_settled) {
        set_rate(id, share.rate);
      }
    }
  }
}

void FlowNetwork::set_rate(LoadId id, double rate) {
  Load& load = loads_[id];
  load.is_settled = true;
  for (const LinkUse& use : load.uses) {
    Link& link = links_[use.link];
    link.room = std::max(0.0, link.room - use.weight * rate);
    link.weight -= use.weight;
    --link.unassigned;
  }
  if (std::abs(rate - load.rate) <= kSameRate * load.rate) {
    return;
  }
  load.left = std::max(0.0, load.left - load.rate * static_cast<double>(now_ - load.since));
  load.since = now_;
  load.rate = rate;
  ++load.version;
  ++events_;
  ends_.push({time_after(now_, load.left / rate), load.order, id, load.version});
}

}  // namespace spillway::emulate
