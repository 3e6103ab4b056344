// SPDX-License-Identifier: Apache-2.0
//
// Where a scenario's network leads: the directed links that a flow from one rank to another
// crosses, and with what share of it. Rank r is host r of the topology. Ranks may stand in nodes,
// runs of `node_ranks` of them: inside a node data goes over links of its own, one out of and one
// into each rank, and not over the network.
//
// Among equally short paths a flow is spread over `paths` of them, drawn by a hash of its ends, as
// switches do by ports; with per-packet spreading evenly over all. Made once; the topology need not
// outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/simulate/flow_network.h"
#include "scenario/topology.h"
#include "sim/routing.h"

namespace spillway::emulate {

struct FabricOptions {
  std::uint32_t node_ranks = 1;
  base::BitRate node_rate = base::gigabits_per_second(3'600);  // of each rank inside its node
  base::Duration node_delay = base::microseconds(1);
  std::uint32_t paths = 8;  // as the transport uses; TCP has one
};
inline constexpr std::uint32_t kMaxPaths = 64;

struct RankPath {
  std::vector<LinkUse> uses;  // each link once
  base::Duration delay{};     // of one packet
};

class FabricPaths {
 public:
  // A sentence where there are fewer hosts than ranks.
  static base::Result<FabricPaths> make(const scenario::Topology& topology, std::uint32_t ranks,
                                        const FabricOptions& options);

  // Bytes per nanosecond that each link carries as the wire counts them.
  const std::vector<double>& capacities() const { return capacities_; }
  // Between two different ranks.
  RankPath path(std::uint32_t from, std::uint32_t to) const;
  // What switches that add need: one copy over every link from the ranks to `centre`, one of them,
  // and one back. All ranks draw alike, so that copies meet as early as they can.
  RankPath tree(const std::vector<std::uint32_t>& ranks, std::uint32_t centre) const;
  std::uint32_t ranks() const { return ranks_; }

 private:
  struct Hop {
    std::uint32_t link = 0;
    scenario::NodeId to = 0;
  };

  FabricPaths() = default;
  // Which of `count` equally good ports a switch takes.
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
