// SPDX-License-Identifier: Apache-2.0
#include "sim/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/random.h"
#include "sim/switch_node.h"

namespace spillway::sim {
namespace {

// First words of derived keys.
constexpr std::uint32_t kSwitchKeys = 1;
constexpr std::uint32_t kLinkKeys = 2;

struct Direction {
  scenario::NodeId from;
  scenario::NodeId to;
};

Direction direction_of(const scenario::Link& link, bool reversed) {
  return reversed ? Direction{link.b, link.a} : Direction{link.a, link.b};
}

}  // namespace

Network::Network(const scenario::Topology& topology, std::uint64_t seed)
    : switch_names_(topology.switch_names) {
  SPILLWAY_CHECK(validate(topology).ok());
  for (std::uint32_t i = 0; i < topology.switch_names.size(); ++i) {
    const std::uint64_t salt = base::derive_key(seed, {kSwitchKeys, i, 0, 0});
    switches_.push_back(std::make_unique<SwitchNode>(pool_, topology.spreading, salt));
  }
  for (const scenario::Adder& adder : topology.adders) {
    switches_[adder.switch_number]->add_sums(adder);
  }
  hosts_.resize(topology.hosts());
  add_directions(topology, seed, /*from_hosts=*/true);
  add_directions(topology, seed, /*from_hosts=*/false);
  std::vector<Routes> routes = shortest_routes(topology);
  for (std::size_t i = 0; i < switches_.size(); ++i) {
    switches_[i]->set_routes(std::move(routes[i]));
  }
}

// Adds the links' directions from hosts, or those from switches. A link's far end must exist
// already.
void Network::add_directions(const scenario::Topology& topology, std::uint64_t seed,
                             bool from_hosts) {
  for (std::uint32_t i = 0; i < topology.links.size(); ++i) {
    for (const bool reversed : {false, true}) {
      const scenario::Link& link = topology.links[i];
      const auto [from, to] = direction_of(link, reversed);
      if ((from < topology.hosts()) != from_hosts) {
        continue;
      }
      const std::uint64_t key = base::derive_key(seed, {kLinkKeys, i, reversed ? 1U : 0U, 0});
      const LinkEnd end{&node(to), link.rate, link.delay, key};
      add_direction(topology, from, unused_name(topology, from, to), link.port, end);
    }
  }
}

void Network::add_direction(const scenario::Topology& topology, scenario::NodeId from,
                            const std::string& name, const spillway_port_config& config,
                            const LinkEnd& end) {
  if (from < topology.hosts()) {
    hosts_[from] = std::make_unique<Host>(from, events_, pool_, end);
    directions_.emplace(name, DirectedLink{&hosts_[from]->transmitter(), nullptr});
    return;
  }
  SwitchNode& owner = *switches_[from - topology.hosts()];
  ports_.push_back(std::make_unique<OutputPort>(name, config, events_, pool_, end));
  owner.add_port(*ports_.back());
  directions_.emplace(name, DirectedLink{&ports_.back()->transmitter(), &owner});
}

Actor& Network::node(scenario::NodeId node) {
  if (node < hosts_.size()) {
    return *hosts_[node];
  }
  return *switches_[node - hosts_.size()];
}

// "a->b", or "a->b#2" for the second parallel link.
std::string Network::unused_name(const scenario::Topology& topology, scenario::NodeId from,
                                 scenario::NodeId to) const {
  const std::string plain = fmt::format("{}->{}", topology.node_name(from), topology.node_name(to));
  std::string name = plain;
  for (int copy = 2; directions_.contains(name); ++copy) {
    name = fmt::format("{}#{}", plain, copy);
  }
  return name;
}

std::uint8_t Network::add_stack(HostId host, std::unique_ptr<HostStack> stack) {
  SPILLWAY_CHECK(host < hosts_.size());
  return hosts_[host]->add_stack(std::move(stack));
}

HostStack& Network::stack(HostId host, std::uint8_t stack) {
  SPILLWAY_CHECK(host < hosts_.size());
  return hosts_[host]->stack(stack);
}

std::uint8_t Network::next_stack(HostId host) const {
  SPILLWAY_CHECK(host < hosts_.size());
  return static_cast<std::uint8_t>(hosts_[host]->stack_count());
}

void Network::start_flow(const Flow& flow, std::uint8_t stack) {
  SPILLWAY_CHECK(flow.from < hosts_.size() && flow.to < hosts_.size() && flow.from != flow.to);
  waiting_flows_.push_back({flow, stack});
  events_.schedule(now(), *this, event(EventKind::kFlow));
}

void Network::start_next_flow(base::Instant now) {
  const WaitingFlow next = waiting_flows_.front();
  waiting_flows_.pop_front();
  Host& source = *hosts_[next.flow.from];
  Host& destination = *hosts_[next.flow.to];
  destination.stack(next.stack).expect_flow(next.flow, destination.host_time(now));
  source.stack(next.stack).start_flow(next.flow, source.host_time(now));
  destination.wake(now);
  source.wake(now);
}

void Network::wake(HostId host) {
  SPILLWAY_CHECK(host < hosts_.size());
  hosts_[host]->wake(now());
}

void Network::at(base::Instant when, std::function<void(base::Instant)> action) {
  if (free_actions_.empty()) {
    free_actions_.push_back(static_cast<std::uint32_t>(actions_.size()));
    actions_.emplace_back();
  }
  const std::uint32_t slot = free_actions_.back();
  free_actions_.pop_back();
  actions_[slot] = std::move(action);
  events_.schedule(when, *this, event(EventKind::kAction, slot));
}

void Network::on_event(std::uint64_t argument, base::Instant now) {
  const auto slot = static_cast<std::uint32_t>(argument);
  switch (static_cast<EventKind>(argument >> 32)) {
    case EventKind::kFlow:
      start_next_flow(now);
      break;
    case EventKind::kAction: {
      const std::function<void(base::Instant)> action = std::exchange(actions_[slot], nullptr);
      free_actions_.push_back(slot);
      action(now);
      break;
    }
  }
}

base::Status Network::add_fault(const scenario::Fault& fault) {
  base::Status status = validate(fault);
  if (!status.ok()) {
    return status;
  }
  if (scenario::is_switch_fault(fault.kind)) {
    return add_switch_fault(fault);
  }
  return scenario::is_host_fault(fault.kind) ? add_host_fault(fault) : add_link_fault(fault);
}

base::Status Network::add_switch_fault(const scenario::Fault& fault) {
  const auto found = std::ranges::find(switch_names_, fault.switch_name);
  if (found == switch_names_.end()) {
    return base::invalid_argument(fmt::format("there is no switch {}; switches are named like {}",
                                              fault.switch_name, switch_names_.front()));
  }
  SwitchNode& node = *switches_[static_cast<std::size_t>(found - switch_names_.begin())];
  at(std::max(fault.from, now()), [&node](base::Instant) { node.restart(); });
  return {};
}

base::Status Network::add_host_fault(const scenario::Fault& fault) {
  if (fault.host >= hosts_.size()) {
    return base::invalid_argument(
        fmt::format("there is no host {}; hosts are 0 to {}", fault.host, hosts_.size() - 1));
  }
  Host& host = *hosts_[fault.host];
  if (fault.kind == scenario::FaultKind::kClockSkew) {
    if (now() != base::Instant()) {
      return base::invalid_argument("a clock skew must be set before the network runs");
    }
    host.set_clock(HostClock(std::llround(fault.skew_ppm * 1000.0), fault.delay));
    return {};
  }
  at(std::max(fault.from, now()), [&host](base::Instant) { host.die(); });
  return {};
}

base::Status Network::add_link_fault(const scenario::Fault& fault) {
  const auto found = directions_.find(fault.link);
  if (found == directions_.end()) {
    return base::invalid_argument(fmt::format("there is no link {}; links are named like {}",
                                              fault.link, directions_.begin()->first));
  }
  found->second.transmitter->add_fault(fault);
  if (fault.kind == scenario::FaultKind::kDown && found->second.owner != nullptr) {
    found->second.owner->watch_links();
  }
  return {};
}

bool Network::run_until(base::Instant limit, const bool& stop) {
  while (!stop && events_.run_next(limit)) {
  }
  return stop;
}

NetworkTotals Network::totals() const {
  NetworkTotals totals;
  const auto add_link = [&](const LinkCounters& counters) {
    totals.lost += counters.lost;
    totals.duplicated += counters.duplicated;
  };
  for (const auto& port : ports_) {
    dataplane::add_counters(port->counters(), totals.ports);
    add_link(port->transmitter().counters());
  }
  for (const auto& host : hosts_) {
    add_link(host->transmitter().counters());
    totals.sent += host->transmitter().counters().packets;
    totals.delivered += host->counters().delivered;
    totals.delivered_data += host->counters().delivered_data;
    totals.lost += host->counters().discarded;
  }
  totals.adders = adders();
  return totals;
}

std::vector<AdderTotals> Network::adders() const {
  std::vector<AdderTotals> adders;
  for (std::size_t i = 0; i < switches_.size(); ++i) {
    if (const SumTable* sums = switches_[i]->sums()) {
      adders.push_back(sums->totals());
      adders.back().name = switch_names_[i];
    }
  }
  return adders;
}

}  // namespace spillway::sim
