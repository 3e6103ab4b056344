// SPDX-License-Identifier: Apache-2.0
//
// A simulated switch: its routes, its output ports, and the node that connects them.
//
//   Routes      the ports on shortest paths to each host
//   OutputPort  the queues in front of one link, with the admission and scheduling of
//               switch/dataplane
//   SwitchNode  sends each arriving packet to one of the ports that lead to its destination
//
// Among equally short paths a node chooses per flow or per packet (Spreading), and avoids a port
// whose link is down if there is another. In a switch that adds, sum packets pass its slots
// (sum_table.h) before a port is chosen.
//
// Pool, event queue and ports must outlive the switch. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "sim/event_queue.h"
#include "sim/link.h"
#include "sim/packet.h"
#include "sim/scenario/topology.h"
#include "sim/sum_table.h"
#include "switch/dataplane/port.h"

namespace spillway::sim {

// ------------------------------------------------------------------ routes

// A switch's ports are numbered in the order of the topology's links.
using PortNumber = std::uint16_t;

// The ports of one switch on shortest paths to each host, counted in links. They are computed once,
// by breadth-first search; hosts never forward. Hosts with the same ports at a switch share a
// group, so that the table takes two bytes per host.
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

// ------------------------------------------------------------------ ports and switches

// Queues of packets in front of a link. A packet is admitted, marked, trimmed or dropped when it
// arrives; trimming cuts its bytes. The port schedules an event only if a packet waits behind the
// one being sent.
class OutputPort final : public Actor {
 public:
  // `config` must be valid (dataplane::validate()).
  OutputPort(std::string name, const spillway_port_config& config, EventQueue& events,
             PacketPool& pool, const LinkEnd& link);

  void accept(PacketIndex index, base::Instant now);
  void on_event(std::uint64_t argument, base::Instant now) override;  // the link is free again
  // Fetches the port, then the next packet.
  void prefetch(std::uint64_t argument, unsigned step) const override;
  // Fetches what accept() needs.
  void prefetch_accept() const {
    __builtin_prefetch(this);
    __builtin_prefetch(&config_);
    __builtin_prefetch(&transmitter_);
    __builtin_prefetch(&counters_);
  }

  const std::string& name() const { return name_; }  // "leaf0->spine1"
  const spillway_port_config& config() const { return config_; }
  const spillway_port_state& state() const { return state_; }
  const spillway_port_counters& counters() const { return counters_; }
  Transmitter& transmitter() { return transmitter_; }
  const Transmitter& transmitter() const { return transmitter_; }

 private:
  struct Chain {
    PacketIndex first = kNone;
    PacketIndex last = kNone;
  };

  std::uint32_t draw();
  void push(PacketIndex index, std::uint8_t queue);
  PacketIndex pop();
  void wait_for_link();

  EventQueue* events_;
  PacketPool* pool_;
  spillway_port_state state_ = {};
  bool waiting_ = false;  // an event for the end of the transmission is scheduled
  spillway_port_config config_;
  std::array<Chain, SPILLWAY_QUEUES> chains_;
  Transmitter transmitter_;
  spillway_port_counters counters_ = {};
  base::RandomSequence random_;
  std::string name_;
};

class SwitchNode final : public Actor {
 public:
  SwitchNode(PacketPool& pool, scenario::Spreading spreading, std::uint64_t salt)
      : pool_(&pool), spreading_(spreading), salt_(salt) {}

  // Ports must be added in the order that routing numbers them, and routes after all ports.
  void add_port(OutputPort& port) { ports_.push_back(&port); }
  void set_routes(Routes routes) { routes_ = std::move(routes); }
  // Call before a link of some port may go down.
  void watch_links() { watches_links_ = true; }
  // Makes it a switch that adds.
  void add_sums(const scenario::Adder& adder);
  // Clears all sums, if the switch adds.
  void restart();
  const SumTable* sums() const { return sums_.get(); }

  void on_event(std::uint64_t argument, base::Instant now) override;  // a packet arrives
  // Fetches the packet, then its route, then its port.
  void prefetch(std::uint64_t argument, unsigned step) const override;

 private:
  OutputPort& choose(const Packet& packet, base::Instant now);
  void add_up(PacketIndex index, base::Instant now);
  void prefetch_port(const Packet& packet) const;
  std::uint32_t choice_by_flow(const Packet& packet, std::uint32_t choices) const;
  std::uint32_t next_in_turn(std::uint32_t choices);

  PacketPool* pool_;
  scenario::Spreading spreading_;
  bool watches_links_ = false;
  std::uint64_t salt_;
  std::uint32_t turn_ = 0;
  Routes routes_{0};
  std::vector<OutputPort*> ports_;
  std::unique_ptr<SumTable> sums_;  // null: the switch does not add
};

}  // namespace spillway::sim
