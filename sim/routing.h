// SPDX-License-Identifier: Apache-2.0
//
// The ports of each switch on shortest paths to each host, counted in links. Computed once from the
// topology by breadth-first search; hosts never forward. A switch's ports are numbered in the order
// of the topology's links. Hosts with the same ports at a switch share a group, so that its table
// takes two bytes per host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/packet.h"
#include "sim/scenario/topology.h"

namespace spillway::sim {

using PortNumber = std::uint16_t;

class Routes {
 public:
  explicit Routes(std::uint32_t hosts) : group_of_(hosts, 0) {}

  std::uint16_t group_of(HostId host) const { return group_of_[host]; }
  // Fetches the host's entry into the cache.
  void prefetch(HostId host) const { __builtin_prefetch(group_of_.data() + host); }
  std::span<const PortNumber> ports(std::uint16_t group) const {
    return std::span(ports_).subspan(groups_[group].first, groups_[group].count);
  }

  // Ports must be given in ascending order.
  void set(HostId host, std::span<const PortNumber> ports);

 private:
  struct Group {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };

  std::vector<std::uint16_t> group_of_;
  std::vector<Group> groups_;
  std::vector<PortNumber> ports_;
};

// One per switch, in the topology's order. The topology must be valid (validate()).
std::vector<Routes> shortest_routes(const scenario::Topology& topology);

}  // namespace spillway::sim
