// SPDX-License-Identifier: Apache-2.0
//
// A network, the jobs on its hosts and its faults, as data, and the text they are read from
// (directives.h describes the lines):
//
//   seed 7                                    of all random streams; default 1
//   limit 2s                                  the run ends then, finished or not; default 10s
//   topology leaf-spine hosts=16 leaves=4 spines=2 rate=25gbit delay=1us spreading=flow|packet
//            (or one-switch hosts=, fat-tree k=, file=PATH)
//            uplink-rate=40gbit   a leaf-spine's; or 50%: of `rate`; default 100%
//            mtu=9000             of real hosts' interfaces; for jobs, use packet=
//   switch mode=drop-tail|ecn|trim|spillway queue=128k ...          all switch ports
//   aggregate slots=4096 policy=static|first-come|preemptive level=0 lease=100ms switch=leaf*
//                                             switches that add sum packets (aggregation.h)
//   job protocol=spillway|dctcp|newreno pattern=incast bytes=1MB ...   any number of them
//   training workers=8 layers=4 bytes=1MB ... a training job, for `spillway sim jobs` (job.h)
//   background load=10% until=5ms ...         other users' flows, which the run does not wait for
//   fault kind=loss link=leaf0->spine1 share=1% from=1ms until=2ms  any number of them
//   fault kind=restart switch=leaf0 from=1ms  a switch that loses its sums
//   tenant from=host0 to=host1 protocol=udp|newreno|dctcp rate=50% on=10ms off=10ms start=1ms
//                                             other users' endless traffic (job.h)
//   port host=host0 interface=veth0           attaches a real host to an emulated network;
//   port host=host0 listen=127.0.0.1:7100 deliver=127.0.0.1:7000    simulations ignore it
//
// parse_scenario() rejects unknown nouns, keys and values; the error names the line and the valid
// ones. It does not check whether the parts fit together (hosts, links) or whether there is
// anything to run; the code that builds a network does. Reads no files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "sim/scenario/aggregation.h"
#include "sim/scenario/job.h"
#include "sim/scenario/topology.h"
#include "switch/dataplane/port_config.h"

namespace spillway::scenario {

enum class TopologyKind : std::uint8_t { kOneSwitch, kLeafSpine, kFatTree, kFile };

struct TopologyOptions {
  TopologyKind kind = TopologyKind::kOneSwitch;
  std::uint32_t hosts = 8;
  std::uint32_t leaves = 4;
  std::uint32_t spines = 4;
  std::uint32_t links = 1;  // between each leaf and each spine
  std::uint32_t k = 4;      // fat-tree
  base::BitRate rate = base::gigabits_per_second(100);
  std::optional<base::BitRate> uplink_rate;  // leaf-spine; unset: `uplink_share` of `rate`
  double uplink_share = 1.0;
  std::uint32_t mtu = 1500;  // of real hosts' interfaces; simulations ignore it
  base::Duration delay = base::microseconds(1);
  Spreading spreading = Spreading::kPerFlow;
  std::string file;
  std::string file_text;  // the contents of `file`, filled in by the caller
};

// A `port` line, uninterpreted; fabric/port.h says what it means.
struct PortLine {
  std::string place;  // for messages: "line 4"
  std::string host;
  std::string interface;
  std::string listen;
  std::string deliver;
};

struct Scenario {
  std::uint64_t seed = 1;
  base::Duration limit = base::seconds(10);
  TopologyOptions topology;
  spillway_port_config port = dataplane::default_port_config(SPILLWAY_PORT_SPILLWAY);
  std::vector<Aggregation> aggregations;
  std::vector<Job> jobs;  // including background jobs
  std::vector<Training> trainings;
  std::vector<Fault> faults;
  std::vector<Tenant> tenants;
  std::vector<PortLine> ports;
};

// `overrides` have the syntax of directives.h and apply in order.
base::Result<Scenario> parse_scenario(std::string_view text,
                                      std::span<const std::string> overrides = {});

// The network of the scenario's `topology`, `switch` and `aggregate` lines. The caller must have
// filled in `file_text` for a topology from a file.
base::Result<Topology> build_topology(const Scenario& scenario);

// The same network with time slowed down. Rates are divided by a factor; delays, leases, tenants'
// bursts and the times of faults are multiplied by it. Queues keep their bytes. The dimensionless
// numbers of a network stay the same: the bandwidth-delay product in packets, queues over that
// product, bursts over round trips. Pure.

// False for a topology from a file: its links have their own rates.
bool can_be_dilated(const Scenario& scenario);

// A `factor` of 2 makes the network half as fast. Jobs and trainings stay as they are; labs do not
// run them.
Scenario dilated(Scenario scenario, double factor);

}  // namespace spillway::scenario
