// SPDX-License-Identifier: Apache-2.0
//
// The directed links that a flow between two ranks crosses in a scenario's network, and its share
// of each. Rank r is host r of the topology. Ranks may be grouped in nodes of `node_ranks`
// consecutive ranks. Traffic inside a node bypasses the network: each rank has a link out of it and
// one into it.
//
// A flow is spread over `paths` of the equally short paths. A hash of its ends draws them, as
// switches do by ports. With per-packet spreading, it is spread evenly over all. Built once; the
// topology need not outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/simulate/flow_network.h"
#include "sim/routing.h"
#include "sim/scenario/topology.h"

namespace spillway::emulate {

struct FabricOptions {
  std::uint32_t node_ranks = 1;
  base::BitRate node_rate = base::gigabits_per_second(3'600);  // per rank, inside its node
  base::Duration node_delay = base::microseconds(1);
  std::uint32_t paths = 8;  // as many as the transport uses; TCP uses one
};
inline constexpr std::uint32_t kMaxPaths = 64;

struct RankPath {
  std::vector<LinkUse> uses;  // each link at most once
  base::Duration delay{};     // of one packet
};

class FabricPaths {
 public:
  // Fails if there are fewer hosts than ranks.
  static base::Result<FabricPaths> make(const scenario::Topology& topology, std::uint32_t ranks,
                                        const FabricOptions& options);

  // Capacity of each link in bytes per nanosecond, counted on the wire.
  const std::vector<double>& capacities() const { return capacities_; }
  // Between two different ranks.
  RankPath path(std::uint32_t from, std::uint32_t to) const;
  // For switches that add: one copy over every link from the ranks to `centre`, one of them, and
  // one copy back. All ranks draw the same paths, so that copies meet as early as possible.
  RankPath tree(const std::vector<std::uint32_t>& ranks, std::uint32_t centre) const;
  std::uint32_t ranks() const { return ranks_; }

 private:
  struct Hop {
    std::uint32_t link = 0;
    scenario::NodeId to = 0;
  };

  FabricPaths() = default;
  // Picks one of `count` equally good ports of a switch.
  using Choice = std::function<std::uint64_t(std::uint32_t at, std::size_t count)>;
  void add_uses(scenario::HostId from, scenario::HostId to, double weight, const Choice& choice,
                std::vector<LinkUse>& uses) const;
  bool are_in_one_node(std::uint32_t a, std::uint32_t b) const {
    return options_.node_ranks > 1 && a / options_.node_ranks == b / options_.node_ranks;
  }
  base::Duration delay_of(const std::vector<LinkUse>& uses) const;
  void spread_evenly(scenario::HostId from, scenario::HostId to, std::vector<LinkUse>& uses) const;

  std::uint32_t ranks_ = 0;
  std::uint32_t hosts_ = 0;
  FabricOptions options_;
  scenario::Spreading spreading_ = scenario::Spreading::kPerFlow;
  std::vector<double> capacities_;
  std::vector<base::Duration> delays_;   // by link
  std::vector<Hop> uplinks_;             // of hosts
  std::vector<std::vector<Hop>> ports_;  // of switches
  std::vector<sim::Routes> routes_;      // of switches
  std::uint32_t first_node_link_ = 0;
};

}  // namespace spillway::emulate
