// SPDX-License-Identifier: Apache-2.0
#include "sim/routing.h"

#include <algorithm>
#include <array>

namespace spillway::sim {
namespace {

constexpr std::uint32_t kUnreached = UINT32_MAX;

struct Neighbour {
  scenario::NodeId node;
  PortNumber port;  // at the switch whose neighbour it is
};

// Each switch's neighbours, in the order of its ports.
using Neighbours = std::vector<std::vector<Neighbour>>;

Neighbours neighbours_of_switches(const scenario::Topology& topology) {
  const std::uint32_t hosts = topology.hosts();
  Neighbours neighbours(topology.switch_names.size());
  const auto add = [&](scenario::NodeId from, scenario::NodeId to) {
    if (from >= hosts) {
      auto& list = neighbours[from - hosts];
      list.push_back({to, static_cast<PortNumber>(list.size())});
    }
  };
  for (const scenario::Link& link : topology.links) {
    add(link.a, link.b);
    add(link.b, link.a);
  }
  return neighbours;
}

// Number of links from each switch to switch `target`, through switches only.
std::vector<std::uint32_t> distances_to(std::uint32_t target, const Neighbours& neighbours,
                                        std::uint32_t hosts) {
  std::vector<std::uint32_t> distance(neighbours.size(), kUnreached);
  std::vector<std::uint32_t> frontier = {target};
  distance[target] = 0;
  for (std::size_t next = 0; next < frontier.size(); ++next) {
    for (const Neighbour& neighbour : neighbours[frontier[next]]) {
      if (neighbour.node < hosts || distance[neighbour.node - hosts] != kUnreached) {
        continue;
      }
      distance[neighbour.node - hosts] = distance[frontier[next]] + 1;
      frontier.push_back(neighbour.node - hosts);
    }
  }
  return distance;
}

// Sets the routes of all switches to the hosts of switch `edge`.
void route_to_hosts_of(std::uint32_t edge, const Neighbours& neighbours, std::uint32_t hosts,
                       std::vector<Routes>& routes) {
  std::vector<HostId> attached;
  for (const Neighbour& neighbour : neighbours[edge]) {
    if (neighbour.node < hosts) {
      attached.push_back(neighbour.node);
      routes[edge].set(neighbour.node, std::array{neighbour.port});
    }
  }
  if (attached.empty()) {
    return;
  }
  const std::vector<std::uint32_t> distance = distances_to(edge, neighbours, hosts);
  std::vector<PortNumber> ports;
  for (std::uint32_t at = 0; at < neighbours.size(); ++at) {
    if (at == edge || distance[at] == kUnreached) {
      continue;
    }
    ports.clear();
    for (const Neighbour& neighbour : neighbours[at]) {
      if (neighbour.node >= hosts && distance[neighbour.node - hosts] + 1 == distance[at]) {
        ports.push_back(neighbour.port);
      }
    }
    for (const HostId host : attached) {
      routes[at].set(host, ports);
    }
  }
}

}  // namespace

void Routes::set(HostId host, std::span<const PortNumber> wanted) {
  // Neighbouring hosts mostly share a group: search the newest groups first.
  for (std::size_t group = groups_.size(); group-- > 0;) {
    if (std::ranges::equal(ports(static_cast<std::uint16_t>(group)), wanted)) {
      group_of_[host] = static_cast<std::uint16_t>(group);
      return;
    }
  }
  SPILLWAY_CHECK(groups_.size() < UINT16_MAX);
  group_of_[host] = static_cast<std::uint16_t>(groups_.size());
  groups_.push_back(
      {static_cast<std::uint32_t>(ports_.size()), static_cast<std::uint32_t>(wanted.size())});
  ports_.insert(ports_.end(), wanted.begin(), wanted.end());
}

std::vector<Routes> shortest_routes(const scenario::Topology& topology) {
  const Neighbours neighbours = neighbours_of_switches(topology);
  std::vector<Routes> routes(neighbours.size(), Routes(topology.hosts()));
  for (std::uint32_t edge = 0; edge < neighbours.size(); ++edge) {
    route_to_hosts_of(edge, neighbours, topology.hosts(), routes);
  }
  return routes;
}

}  // namespace spillway::sim
