// SPDX-License-Identifier: Apache-2.0
//
// The simulated network: hosts with their stacks, switches, links and the clock that moves them.
//
// A run is a function of the topology, the seed and what is handed in: same calls, same packets.
// One thread; any number of networks per process. Stacks are called one at a time and never from
// inside each other: flows started and cards woken from within a stack's call take effect at the
// same instant, after it returned.
//
// A packet that a stack sends costs its frame plus SPILLWAY_WIRE_OVERHEAD on each link, then the
// link's delay. Switches are output-queued and forward whole packets; their own delay is the
// link's.
#pragma once

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
#include "scenario/fault.h"
#include "scenario/topology.h"
#include "sim/event_queue.h"
#include "sim/host.h"
#include "sim/host_stack.h"
#include "sim/packet.h"
#include "sim/sum_totals.h"
#include "sim/switch_node.h"

namespace spillway::sim {

struct NetworkTotals {
  spillway_port_counters ports = {};  // of all switch ports
  std::uint64_t sent = 0;             // packets that hosts put on their links
  std::uint64_t delivered = 0;        // packets handed to stacks
  std::uint64_t delivered_data = 0;   // the same without control packets and TCP acknowledgements
  std::uint64_t lost = 0;             // to link faults and dead hosts
  std::uint64_t duplicated = 0;
  std::vector<AdderTotals> adders;  // switches that add
};

// A packet names its stack in a byte.
inline constexpr std::size_t kMaxStacks = UINT8_MAX;

class Network final : private Actor {
 public:
  // The topology must be one that validate() accepts.
  Network(const scenario::Topology& topology, std::uint64_t seed);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network() override = default;

  // The host's new stack's number: 0 for its first. Packet::stack addresses it.
  std::uint8_t add_stack(HostId host, std::unique_ptr<HostStack> stack);
  HostStack& stack(HostId host, std::uint8_t stack);
  // The number that the host's next stack will get.
  std::uint8_t next_stack(HostId host) const;

  // Tells both ends of the flow, the destination first, and wakes their cards.
  void start_flow(const Flow& flow, std::uint8_t stack);
  // Asks the host's stacks for packets and timeouts again.
  void wake(HostId host);
  // Calls `action` at `when`, not before now().
  void at(base::Instant when, std::function<void(base::Instant)> action);
  base::Status add_fault(const scenario::Fault& fault);

  base::Instant now() const { return events_.now(); }
  // When something happens next; nothing: never, unless something is handed in.
  std::optional<base::Instant> next_time() const { return events_.next_time(); }
  // Runs until `stop` turns true, nothing is left to happen, or `limit` has come. True if stopped.
  bool run_until(base::Instant limit, const bool& stop);
  bool run_until(base::Instant limit) { return run_until(limit, false); }

  PacketPool& pool() { return pool_; }
  std::uint32_t hosts() const { return static_cast<std::uint32_t>(hosts_.size()); }
  // Switch ports, in the order of the topology's links.
  std::size_t port_count() const { return ports_.size(); }
  const OutputPort& port(std::size_t index) const { return *ports_[index]; }

  NetworkTotals totals() const;
  std::vector<AdderTotals> adders() const;
  // Events that were run: what a simulated second costs.
  std::uint64_t events_run() const { return events_.events_run(); }

 private:
  enum class EventKind : std::uint32_t { kFlow, kAction };

  struct WaitingFlow {
    Flow flow;
    std::uint8_t stack = 0;
  };

  struct DirectedLink {
    Transmitter* transmitter = nullptr;
    SwitchNode* owner = nullptr;  // where it starts at a switch
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
