// SPDX-License-Identifier: Apache-2.0
#include "collective/coded/coded_route.h"

namespace spillway::collective {
namespace {

CodedRoute direct_route(const Group& group, std::uint16_t chunk) {
  CodedRoute route;
  route.result_from = chunk;
  if (group.rank != chunk) {
    route.to = chunk;
    return route;
  }
  route.received_step = 1;
  for (std::uint16_t i = 1; i < group.world; ++i) {
    route.sources.push_back(static_cast<std::uint16_t>((group.rank + i) % group.world));
  }
  route.result_to = route.sources;
  return route;
}

CodedRoute ring_route(const Group& group, std::uint16_t chunk) {
  const unsigned world = group.world;
  const auto next = static_cast<std::uint16_t>((group.rank + 1) % world);
  const auto previous = static_cast<std::uint16_t>((group.rank + world - 1) % world);
  const unsigned place = (group.rank + world - chunk) % world;  // hops from where it begins
  CodedRoute route;
  if (place > 0) {
    route.sources.push_back(previous);
    route.received_step = static_cast<std::uint16_t>(place);
  }
  route.sent_step = static_cast<std::uint16_t>(place + 1);
  if (place + 1 < world) {
    route.to = next;
  }
  route.result_from = previous;
  if (place + 2 != world) {  // else the next rank made the sum
    route.result_to.push_back(next);
  }
  return route;
}

}  // namespace

CodedRoute route_of(Algorithm algorithm, const Group& group, std::uint16_t chunk) {
  return algorithm == Algorithm::kRing ? ring_route(group, chunk) : direct_route(group, chunk);
}

}  // namespace spillway::collective
