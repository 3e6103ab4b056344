// SPDX-License-Identifier: Apache-2.0
//
// The simulated network: hosts with their stacks, switches, links, and the clock.
//
// A run is a function of the topology, the seed and the calls: the same calls give the same
// packets. One thread per network; any number of networks per process. Stacks are called one at a
// time and never recursively: flows started and hosts woken from within a stack's call take effect
// at the same instant, after the call returns.
//
// A packet occupies each link for its frame plus SPILLWAY_WIRE_OVERHEAD, then takes the link's
// delay. Switches are output-queued and store and forward; the link's delay includes their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "sim/event_queue.h"
#include "sim/host.h"
#include "sim/packet.h"
#include "sim/scenario/topology.h"
#include "sim/sum_table.h"
#include "sim/switch_node.h"

namespace spillway::sim {

struct NetworkTotals {
  spillway_port_counters ports = {};  // of all switch ports
  std::uint64_t sent = 0;             // packets that hosts put on their links
  std::uint64_t delivered = 0;        // packets handed to stacks
  std::uint64_t delivered_data = 0;   // without control packets and TCP acknowledgements
  std::uint64_t lost = 0;             // to link faults and dead hosts
  std::uint64_t duplicated = 0;
  std::vector<AdderTotals> adders;  // switches that add
};

// A packet holds its stack's number in one byte.
inline constexpr std::size_t kMaxStacks = UINT8_MAX;

class Network final : private Actor {
 public:
  // The topology must be valid (validate()).
  Network(const scenario::Topology& topology, std::uint64_t seed);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network() override = default;

  // Returns the new stack's number on this host: 0 for its first. Packet::stack addresses it.
  std::uint8_t add_stack(HostId host, std::unique_ptr<HostStack> stack);
  HostStack& stack(HostId host, std::uint8_t stack);
  // The number that the host's next stack gets.
  std::uint8_t next_stack(HostId host) const;

  // Calls both ends of the flow, the destination first, and wakes both hosts.
  void start_flow(const Flow& flow, std::uint8_t stack);
  // Polls the host's stacks for packets and timeouts again.
  void wake(HostId host);
  // Calls `action` at `when`, not before now().
  void at(base::Instant when, std::function<void(base::Instant)> action);
  base::Status add_fault(const scenario::Fault& fault);

  base::Instant now() const { return events_.now(); }
  // The time of the next event; unset if there is none.
  std::optional<base::Instant> next_time() const { return events_.next_time(); }
  // Runs until `stop` becomes true, no event is left, or `limit` is reached. Returns `stop`.
  bool run_until(base::Instant limit, const bool& stop);
  bool run_until(base::Instant limit) { return run_until(limit, false); }

  PacketPool& pool() { return pool_; }
  // Bytes of frames that the host's link has carried, one way: the greater of the two.
  std::uint64_t nic_bytes(HostId host) const {
    return std::max(hosts_[host]->transmitter().counters().bytes,
                    hosts_[host]->counters().received_bytes);
  }
  std::uint32_t hosts() const { return static_cast<std::uint32_t>(hosts_.size()); }
  // Switch ports, in the order of the topology's links.
  std::size_t port_count() const { return ports_.size(); }
  const OutputPort& port(std::size_t index) const { return *ports_[index]; }

  NetworkTotals totals() const;
  std::vector<AdderTotals> adders() const;
  // Number of events run: the cost of a simulation.
  std::uint64_t events_run() const { return events_.events_run(); }

 private:
  enum class EventKind : std::uint32_t { kFlow, kAction };

  struct WaitingFlow {
    Flow flow;
    std::uint8_t stack = 0;
  };

  struct DirectedLink {
    Transmitter* transmitter = nullptr;
    SwitchNode* owner = nullptr;  // the switch it starts at; null at a host
  };

  static constexpr std::uint64_t event(EventKind kind, std::uint32_t value = 0) {
    return (std::uint64_t{static_cast<std::uint32_t>(kind)} << 32) | value;
  }

  void on_event(std::uint64_t argument, base::Instant now) override;
  void start_next_flow(base::Instant now);
  Actor& node(scenario::NodeId node);
  void add_directions(const scenario::Topology& topology, std::uint64_t seed, bool from_hosts);
  void add_direction(const scenario::Topology& topology, scenario::NodeId from,
                     const std::string& name, const spillway_port_config& config,
                     const LinkEnd& end);
  std::string unused_name(const scenario::Topology& topology, scenario::NodeId from,
                          scenario::NodeId to) const;
  base::Status add_host_fault(const scenario::Fault& fault);
  base::Status add_link_fault(const scenario::Fault& fault);
  base::Status add_switch_fault(const scenario::Fault& fault);

  EventQueue events_;
  PacketPool pool_;
  std::vector<std::unique_ptr<SwitchNode>> switches_;
  std::vector<std::string> switch_names_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<OutputPort>> ports_;
  std::map<std::string, DirectedLink, std::less<>> directions_;  // by name
  std::deque<WaitingFlow> waiting_flows_;
  std::vector<std::function<void(base::Instant)>> actions_;
  std::vector<std::uint32_t> free_actions_;
};

}  // namespace spillway::sim
