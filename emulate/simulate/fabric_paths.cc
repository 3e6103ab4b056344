// SPDX-License-Identifier: Apache-2.0
#include "emulate/simulate/fabric_paths.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"

namespace spillway::emulate {
namespace {

// No topology has shortest paths this long.
constexpr unsigned kMostHops = 64;
constexpr std::uint64_t kSpreadKey = 0x5EED;

double bytes_per_nanosecond(base::BitRate rate) {
  return static_cast<double>(rate.count()) / 8e9;
}

// Merges duplicates, so that each link occurs once, in ascending order.
void join_uses(std::vector<LinkUse>& uses) {
  std::sort(uses.begin(), uses.end(),
            [](const LinkUse& a, const LinkUse& b) { return a.link < b.link; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (kept > 0 && uses[kept - 1].link == uses[i].link) {
      uses[kept - 1].weight += uses[i].weight;
    } else {
      uses[kept++] = uses[i];
    }
  }
  uses.resize(kept);
}

}  // namespace

base::Result<FabricPaths> FabricPaths::make(const scenario::Topology& topology, std::uint32_t ranks,
                                            const FabricOptions& options) {
  if (ranks > topology.hosts()) {
    return base::invalid_argument(
        fmt::format("{} ranks need as many hosts; the network has {}: say "
                    "--set topology.hosts={} or choose another",
                    ranks, topology.hosts(), ranks));
  }
  if (options.node_ranks == 0 || options.paths == 0 || options.paths > kMaxPaths) {
    return base::invalid_argument(
        fmt::format("a node has at least one rank, and a flow 1 to {} paths", kMaxPaths));
  }
  FabricPaths made;
  made.ranks_ = ranks;
  made.hosts_ = topology.hosts();
  made.options_ = options;
  made.spreading_ = topology.spreading;
  made.uplinks_.resize(topology.hosts());
  made.ports_.resize(topology.switch_names.size());
  for (const scenario::Link& link : topology.links) {
    // In the order in which routes number a switch's ports.
    for (const auto& [from, to] : {std::pair(link.a, link.b), std::pair(link.b, link.a)}) {
      const Hop hop{static_cast<std::uint32_t>(made.capacities_.size()), to};
      made.capacities_.push_back(bytes_per_nanosecond(link.rate));
      made.delays_.push_back(link.delay);
      if (from < topology.hosts()) {
        made.uplinks_[from] = hop;
      } else {
        made.ports_[from - topology.hosts()].push_back(hop);
      }
    }
  }
  made.routes_ = sim::shortest_routes(topology);
  made.first_node_link_ = static_cast<std::uint32_t>(made.capacities_.size());
  if (options.node_ranks > 1) {
    made.capacities_.resize(made.capacities_.size() + 2 * std::size_t{ranks},
                            bytes_per_nanosecond(options.node_rate));
  }
  return made;
}

void FabricPaths::add_uses(scenario::HostId from, scenario::HostId to, double weight,
                           const Choice& choice, std::vector<LinkUse>& uses) const {
  Hop hop = uplinks_[from];
  uses.push_back({hop.link, weight});
  for (unsigned hops = 0; hop.to >= hosts_ && hops < kMostHops; ++hops) {
    const std::uint32_t at = hop.to - hosts_;
    const auto ports = routes_[at].ports(routes_[at].group_of(to));
    hop = ports_[at][ports[ports.size() == 1 ? 0 : choice(at, ports.size())]];
    uses.push_back({hop.link, weight});
  }
}

// Level by level: traffic that reaches a switch leaves it over all ports of shortest paths.
void FabricPaths::spread_evenly(scenario::HostId from, scenario::HostId to,
                                std::vector<LinkUse>& uses) const {
  std::vector<LinkUse> here = {{uplinks_[from].to, 1.0}};  // LinkUse::link holds a node here
  uses.push_back({uplinks_[from].link, 1.0});
  for (unsigned hops = 0; !here.empty() && hops < kMostHops; ++hops) {
    std::vector<LinkUse> next;
    for (const LinkUse& place : here) {
      if (place.link < hosts_) {
        continue;
      }
      const std::uint32_t at = place.link - hosts_;
      const auto ports = routes_[at].ports(routes_[at].group_of(to));
      for (const sim::PortNumber port : ports) {
        const double weight = place.weight / static_cast<double>(ports.size());
        uses.push_back({ports_[at][port].link, weight});
        next.push_back({ports_[at][port].to, weight});
      }
    }
    join_uses(next);
    here = std::move(next);
  }
}

base::Duration FabricPaths::delay_of(const std::vector<LinkUse>& uses) const {
  double delay = 0.0;
  for (const LinkUse& use : uses) {
    delay += use.weight * static_cast<double>(delays_[use.link].count());
  }
  return base::nanoseconds(static_cast<std::int64_t>(delay));
}

RankPath FabricPaths::path(std::uint32_t from, std::uint32_t to) const {
  RankPath made;
  if (are_in_one_node(from, to)) {
    made.uses = {{first_node_link_ + 2 * from, 1.0}, {first_node_link_ + 2 * to + 1, 1.0}};
    made.delay = options_.node_delay;
    return made;
  }
  if (spreading_ == scenario::Spreading::kPerPacket) {
    spread_evenly(from, to, made.uses);
  } else {
    for (std::uint32_t draw = 0; draw < options_.paths; ++draw) {
      const Choice drawn = [&](std::uint32_t at, std::size_t count) {
        return base::random_block(kSpreadKey, {from, to, at, draw})[0] % count;
      };
      add_uses(from, to, 1.0 / options_.paths, drawn, made.uses);
    }
  }
  join_uses(made.uses);
  made.delay = delay_of(made.uses);
  return made;
}

RankPath FabricPaths::tree(const std::vector<std::uint32_t>& ranks, std::uint32_t centre) const {
  RankPath made;
  std::vector<LinkUse> drawn;
  for (std::uint32_t draw = 0; draw < options_.paths; ++draw) {
    const Choice in_turn = [&](std::uint32_t /*at*/, std::size_t count) {
      return (centre + draw) % count;
    };
    drawn.clear();
    for (const std::uint32_t rank : ranks) {
      if (rank == centre) {
        continue;
      }
      const std::size_t before = drawn.size();
      if (are_in_one_node(rank, centre)) {
        drawn.insert(drawn.end(), {{first_node_link_ + 2 * rank, 1.0},
                                   {first_node_link_ + 2 * rank + 1, 1.0},
                                   {first_node_link_ + 2 * centre, 1.0},
                                   {first_node_link_ + 2 * centre + 1, 1.0}});
        made.delay = std::max(made.delay, options_.node_delay);
        continue;
      }
      add_uses(rank, centre, 1.0, in_turn, drawn);
      const std::vector<LinkUse> up(drawn.begin() + static_cast<std::ptrdiff_t>(before),
                                    drawn.end());
      made.delay = std::max(made.delay, delay_of(up));
      add_uses(centre, rank, 1.0, in_turn, drawn);
    }
    join_uses(drawn);
    for (const LinkUse& use : drawn) {
      made.uses.push_back({use.link, 1.0 / options_.paths});
    }
  }
  join_uses(made.uses);
  return made;
}

}  // namespace spillway::emulate
