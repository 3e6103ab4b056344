// SPDX-License-Identifier: Apache-2.0
//
// Hosts, switches and the links between them, as data. Nodes are numbered hosts first, then
// switches. A link has the same rate and delay in both directions. `port` configures the links'
// switch ends; hosts' ends queue nothing. A directed link is named by its ends: "host3->leaf0",
// "leaf0->spine1". From the second on, parallel links append a number: "leaf0->spine1#2".
//
// Builders and the text reader return a topology that validate() accepts, or an
// error that says what to change. Every host has exactly one link and every host reaches every
// other. At most 65,536 hosts, as many switches and a million links.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "sim/scenario/aggregation.h"
#include "switch/dataplane/port_config.h"
#include "transport/message.h"

namespace spillway::scenario {

// ------------------------------------------------------------------ networks

using HostId = std::uint32_t;
using NodeId = std::uint32_t;  // a host's is its HostId; switches follow

// How a switch chooses among equally short paths.
enum class Spreading : std::uint8_t {
  kPerFlow,   // by a hash of addresses and label, salted per switch
  kPerPacket  // in turn, packet by packet
};

struct Link {
  NodeId a = 0;
  NodeId b = 0;
  base::BitRate rate = base::gigabits_per_second(100);
  base::Duration delay = base::microseconds(1);
  spillway_port_config port = dataplane::default_port_config(SPILLWAY_PORT_SPILLWAY);
  bool own_buffer = false;  // port.queue_bytes was given for this link alone
};

// A switch that adds; `switch_number` counts switches only.
struct Adder {
  std::uint32_t switch_number = 0;
  spillway_sum_config config = {};
  std::vector<JobSlots> limits;
};

struct Topology {
  std::vector<std::string> host_names;
  std::vector<std::string> switch_names;
  std::vector<Link> links;
  std::vector<Adder> adders;  // in the switches' order
  Spreading spreading = Spreading::kPerFlow;

  std::uint32_t hosts() const { return static_cast<std::uint32_t>(host_names.size()); }
  std::uint32_t nodes() const {
    return static_cast<std::uint32_t>(host_names.size() + switch_names.size());
  }
  const std::string& node_name(NodeId node) const {
    return node < hosts() ? host_names[node] : switch_names[node - hosts()];
  }
  // The rate of the host's only link.
  base::BitRate host_rate(HostId host) const;
  // Configures all switch ports. Links with their own buffer keep it, and thresholds scale with it.
  void set_port_config(const spillway_port_config& port);
  // Errors name a line that matches no switch, or the second line for one switch.
  base::Status set_aggregation(const std::vector<Aggregation>& lines);
};

// Rates at which a frame can be timed: it takes at least a nanosecond and at most some seconds.
inline constexpr base::BitRate kMinRate = base::bits_per_second(1'000);
inline constexpr base::BitRate kMaxRate = base::gigabits_per_second(10'000);
// An error if the rate is outside these limits.
base::Status validate_rate(base::BitRate rate);

base::Status validate(const Topology& topology);

// `port` with data queues of `queue_bytes`; early drop and marks stay at the same shares of them.
spillway_port_config with_buffer(spillway_port_config port, std::uint32_t queue_bytes);

struct OneSwitchOptions {
  std::uint32_t hosts = 8;
  base::BitRate rate = base::gigabits_per_second(100);
  base::Duration delay = base::microseconds(1);
};
base::Result<Topology> one_switch(const OneSwitchOptions& options);

// Leaves get consecutive runs of hosts, leaf0 the first.
struct LeafSpineOptions {
  std::uint32_t hosts = 32;
  std::uint32_t leaves = 4;
  std::uint32_t spines = 4;
  std::uint32_t links = 1;  // between each leaf and each spine
  base::BitRate host_rate = base::gigabits_per_second(100);
  base::BitRate uplink_rate = base::gigabits_per_second(100);
  base::Duration delay = base::microseconds(1);  // of each link
};
base::Result<Topology> leaf_spine(const LeafSpineOptions& options);

// k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores, k^3/4 hosts (Al-Fares 2008).
struct FatTreeOptions {
  std::uint32_t k = 4;  // even
  base::BitRate rate = base::gigabits_per_second(100);
  base::Duration delay = base::microseconds(1);
};
base::Result<Topology> fat_tree(const FatTreeOptions& options);

// Topologies from text: one item per line, `#` begins a comment.
//
//   switch NAME
//   host NAME
//   link A B rate=100gbit delay=1us [buffer=256k]
//
// Names must be declared before a link uses them; hosts are numbered in order of appearance.
// `buffer` limits each data queue of the link's switch ports. Errors name the line.

base::Result<Topology> parse_topology(std::string_view text);

// ------------------------------------------------------------------ faults

// Faults of a network, as data. A link fault affects one direction of one link and acts on every
// packet sent from `from` until `until`. Host faults affect one host, switch faults one switch.
//
//   kLoss       each packet is lost with probability `share`
//   kBursty     Gilbert-Elliott: `share` lost on average, in bursts of `burst_packets` on average;
//               a pause of four times their length ends a burst
//   kGray       as kLoss, on a link that routing keeps using: nobody is told; share may be 1
//   kDown       everything is lost; the switch at the link's start avoids it where it has another
//               equally short path
//   kDuplicate  each packet arrives twice with probability `share`
//   kReorder    each packet is held up to `delay` more with probability `share`
//   kCorrupt    each packet has, with probability `share`, 1 to 8 bits flipped or its corrupt flag
//               set
//   kHostDeath  the host neither sends nor receives after `from`
//   kClockSkew  the host's clock runs `skew_ppm` fast (slow if negative) and `delay` ahead, all the
//               time; `from` stays zero
//   kRestart    the switch forgets, at `from`, all sums it holds and all ranks it knows; packets in
//               its queues are not touched
//
// Each fault draws from its own random stream, keyed by the network's seed and the link.

enum class FaultKind : std::uint8_t {
  kLoss,
  kBursty,
  kGray,
  kDown,
  kDuplicate,
  kReorder,
  kCorrupt,
  kHostDeath,
  kClockSkew,
  kRestart
};

inline constexpr HostId kNoHost = UINT32_MAX;

struct Fault {
  FaultKind kind = FaultKind::kLoss;
  std::string link{};         // as topology.h names it: "leaf0->spine1"; for link faults
  HostId host = kNoHost;      // for host faults
  std::string switch_name{};  // for switch faults
  base::Instant from{};
  base::Instant until = transport::kNever;
  double share = 1.0;
  double burst_packets = 10.0;
  base::Duration delay{};
  double skew_ppm = 0.0;
};

bool is_host_fault(FaultKind kind);
bool is_switch_fault(FaultKind kind);

// Names the first invalid field; does not look names up.
base::Status validate(const Fault& fault);

}  // namespace spillway::scenario
