// SPDX-License-Identifier: Apache-2.0
#include "sim/switch_node.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "switch/dataplane/admission.h"
#include "switch/dataplane/scheduling.h"

namespace spillway::sim {

// ------------------------------------------------------------------ routes

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

// ------------------------------------------------------------------ ports and switches

namespace {

std::uint8_t frame_flags(PacketKind kind) {
  switch (kind) {
    case PacketKind::kSpillwayData:
    case PacketKind::kSpillwaySum:
      return SPILLWAY_FRAME_TRIMMABLE;
    case PacketKind::kSpillwayControl:
    case PacketKind::kSpillwaySumControl:
      return SPILLWAY_FRAME_CONTROL;
    case PacketKind::kTcp:
    case PacketKind::kOther:
      break;
  }
  return 0;
}

spillway_frame frame_of(const Packet& packet) {
  return {packet.bytes, packet.dscp, packet.ecn, packet.importance, frame_flags(packet.kind)};
}

// A finaliser in the style of splitmix64: every input bit affects every output bit.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

// Maps 32 random bits to [0, bound) without a division.
std::uint32_t scale(std::uint32_t word, std::uint32_t bound) {
  return static_cast<std::uint32_t>((std::uint64_t{word} * bound) >> 32);
}

}  // namespace

OutputPort::OutputPort(std::string name, const spillway_port_config& config, EventQueue& events,
                       PacketPool& pool, const LinkEnd& link)
    : events_(&events),
      pool_(&pool),
      config_(config),
      transmitter_(events, pool, link),
      random_(base::derive_key(link.key, {1, 0, 0, 0})),
      name_(std::move(name)) {}

// Draws a number only if the decision can depend on it: on the ramp of an ECN port.
std::uint32_t OutputPort::draw() {
  const bool has_ramp =
      config_.mode == SPILLWAY_PORT_ECN && config_.red_min_bytes < config_.red_max_bytes;
  return has_ramp ? random_.next_word() : 0;
}

void OutputPort::accept(PacketIndex index, base::Instant now) {
  Packet& packet = (*pool_)[index];
  const spillway_frame frame = frame_of(packet);
  spillway_decision decision;
  spillway_admit(&config_, &state_, &frame, draw(), &decision);
  spillway_count(&counters_, &frame, &decision);
  if (decision.verdict == SPILLWAY_DROP) {
    pool_->release(index);
    return;
  }
  if (decision.bytes != packet.bytes) {
    pool_->trim(packet, decision.bytes);
  }
  packet.dscp = decision.dscp;
  packet.ecn = decision.ecn;
  if (state_.occupied == 0 && !transmitter_.busy(now)) {
    transmitter_.send(index, now);
    return;
  }
  push(index, decision.queue);
  wait_for_link();
}

void OutputPort::on_event(std::uint64_t /*argument*/, base::Instant now) {
  waiting_ = false;
  transmitter_.send(pop(), now);
  if (state_.occupied != 0) {
    wait_for_link();
  }
}

void OutputPort::prefetch(std::uint64_t /*argument*/, unsigned step) const {
  if (step == 0) {
    prefetch_accept();
  } else if (step == 1) {
    const int queue = spillway_next_queue(&state_);
    if (queue != SPILLWAY_NO_QUEUE) {
      pool_->prefetch(chains_[static_cast<std::size_t>(queue)].first);
    }
  }
}

void OutputPort::wait_for_link() {
  if (!waiting_) {
    waiting_ = true;
    events_->schedule(transmitter_.busy_until(), *this, 0);
  }
}

void OutputPort::push(PacketIndex index, std::uint8_t queue) {
  Packet& packet = (*pool_)[index];
  packet.next = kNone;
  Chain& chain = chains_[queue];
  if (chain.first == kNone) {
    chain.first = index;
  } else {
    (*pool_)[chain.last].next = index;
  }
  chain.last = index;
  spillway_enqueued(&state_, queue, packet.bytes);
}

PacketIndex OutputPort::pop() {
  const int queue = spillway_next_queue(&state_);
  SPILLWAY_CHECK(queue != SPILLWAY_NO_QUEUE);
  Chain& chain = chains_[static_cast<std::size_t>(queue)];
  const PacketIndex index = chain.first;
  const Packet& packet = (*pool_)[index];
  chain.first = packet.next;
  spillway_dequeued(&config_, &state_, static_cast<std::uint8_t>(queue), packet.bytes);
  return index;
}

std::uint32_t SwitchNode::choice_by_flow(const Packet& packet, std::uint32_t choices) const {
  const std::uint64_t addresses = (std::uint64_t{packet.from} << 32) | packet.to;
  const std::uint64_t hash = mix(mix(addresses ^ salt_) ^ packet.label);
  return scale(static_cast<std::uint32_t>(hash >> 32), choices);
}

std::uint32_t SwitchNode::next_in_turn(std::uint32_t choices) {
  turn_ = turn_ + 1 < choices ? turn_ + 1 : 0;
  return turn_;
}

OutputPort& SwitchNode::choose(const Packet& packet, base::Instant now) {
  const std::span<const PortNumber> ports = routes_.ports(routes_.group_of(packet.to));
  const auto count = static_cast<std::uint32_t>(ports.size());
  const std::uint32_t first = count == 1 ? 0
                              : spreading_ == scenario::Spreading::kPerPacket
                                  ? next_in_turn(count)
                                  : choice_by_flow(packet, count);
  if (watches_links_) [[unlikely]] {
    for (std::uint32_t i = 0; i < count; ++i) {
      OutputPort& port = *ports_[ports[(first + i) % count]];
      if (!port.transmitter().down(now)) {
        return port;
      }
    }
  }
  return *ports_[ports[first]];
}

void SwitchNode::on_event(std::uint64_t argument, base::Instant now) {
  const auto index = static_cast<PacketIndex>(argument);
  if (sums_ != nullptr && is_sum((*pool_)[index].kind)) [[unlikely]] {
    add_up(index, now);
    return;
  }
  choose((*pool_)[index], now).accept(index, now);
}

void SwitchNode::add_up(PacketIndex index, base::Instant now) {
  // Hosts of a group are reached through the same ports, so a group stands for a direction.
  const std::uint32_t direction = routes_.group_of((*pool_)[index].from);
  for (const PacketIndex leaving : sums_->take(index, direction, now)) {
    choose((*pool_)[leaving], now).accept(leaving, now);
  }
}

void SwitchNode::add_sums(const scenario::Adder& adder) {
  sums_ = std::make_unique<SumTable>(*pool_, adder);
}

void SwitchNode::restart() {
  if (sums_ != nullptr) {
    sums_->reset();
  }
}

void SwitchNode::prefetch(std::uint64_t argument, unsigned step) const {
  const auto index = static_cast<PacketIndex>(argument);
  if (step == 0) {
    pool_->prefetch(index);
  } else if (step == 1) {
    routes_.prefetch((*pool_)[index].to);
  } else if (step == 2) {
    prefetch_port((*pool_)[index]);
  }
}

void SwitchNode::prefetch_port(const Packet& packet) const {
  const std::span<const PortNumber> ports = routes_.ports(routes_.group_of(packet.to));
  if (ports.size() == 1 || spreading_ == scenario::Spreading::kPerFlow) {
    ports_[ports[choice_by_flow(packet, static_cast<std::uint32_t>(ports.size()))]]
        ->prefetch_accept();
  }
}

}  // namespace spillway::sim
