// SPDX-License-Identifier: Apache-2.0
//
// A lab's hosts (HostPlan) and their links in the kernel: veth pairs, addresses, neighbours,
// offloads off, rates at the hosts' ends. iproute2 makes them. The ..._batch() functions return the
// text for its batch mode; they are pure and for any thread. The set_up_...() functions run it, on
// a thread in the fabric's network namespace.
//
// Every host has a veth pair: `port<n>` stays in the fabric's namespace, `eth0` goes to the host's.
// Neighbours are static, so that no ARP or neighbour discovery crosses the fabric. At the host's
// end, a token bucket of the link's rate makes senders wait as a network card would.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/system_call.h"
#include "sim/scenario/scenario.h"
#include "switch/dataplane/port.h"

namespace spillway::lab {

// ------------------------------------------------------------------ hosts
//
// Names, addresses and link rates of a lab's hosts. They follow from the scenario alone, so every
// process of a lab computes the same ones. Host n (from 0; rank n runs on it) has
//
//   10.77.x.y/16         x.y = n + 1 in two bytes
//   fd77::h/64           h = n + 1 in hexadecimal; none if the MTU is below IPv6's 1280
//   02:53:57:00:x:y      its Ethernet address
//   eth0                 its interface; `port<n>` is the other end, in the fabric's namespace
//
// Without namespaces (Isolation::kNone) hosts share 127.0.0.1 and differ by port.
//
// Limits: kMaxHosts, kMinMtu to kMaxMtu, links of at most kMaxRate.

inline constexpr std::uint32_t kMaxHosts = 256;
inline constexpr unsigned kMinMtu = 576;
inline constexpr unsigned kMinIpv6Mtu = 1280;
inline constexpr unsigned kMaxMtu = 9216;
inline constexpr unsigned kDefaultMtu = 1500;
// No machine emulates faster links in real time.
inline constexpr base::BitRate kMaxRate = base::gigabits_per_second(40);

inline constexpr std::string_view kHostInterface = "eth0";

struct HostEntry {
  std::string name;            // of the topology: "host0"
  std::string port_interface;  // "port0"
  std::string mac;
  std::string ipv4;
  std::string ipv6;  // empty: none
  base::BitRate rate;
  net::SocketAddress peer;    // where others send Spillway packets for it
  net::SocketAddress listen;  // where it receives them
};

struct HostPlan {
  std::vector<HostEntry> hosts;
  unsigned mtu = kDefaultMtu;
  std::uint32_t trim_bytes = 0;  // 0: the fabric does not trim
  std::string master_address;
};

struct PlanOptions {
  unsigned mtu = kDefaultMtu;
  std::uint16_t port = 7077;
};

base::Result<HostPlan> make_host_plan(const scenario::Scenario& scenario,
                                      const PlanOptions& options);

// The same hosts as plain processes on loopback. `peers` and `listens` have one entry per host.
HostPlan on_loopback(HostPlan plan, const std::vector<net::SocketAddress>& peers,
                     const std::vector<net::SocketAddress>& listens);

// For `ip -batch -` in the fabric's namespace. `namespace_fds[n]` must be open in the process that
// runs it.
std::string fabric_links_batch(const HostPlan& plan, const std::vector<int>& namespace_fds);

// For `ip -batch -` in the namespace of host `index`.
std::string host_links_batch(const HostPlan& plan, std::size_t index);

// For the same, afterwards: sets the congestion control of TCP connections to other hosts.
std::string congestion_control_batch(const HostPlan& plan, std::size_t index,
                                     const std::string& tcp);

// For `tc -batch -` in the namespace of host `index`.
std::string host_shaping_batch(const HostPlan& plan, std::size_t index);

// Major number of the qdisc of port_queues_batch(). Its classes 1 to 9 are a port's queues 0 to 8
// (dataplane/port.h).
inline constexpr std::uint16_t kPortQueuesMajor = 0x5357;

// For `tc -batch -` in the fabric's namespace: the real queues of port `index` of a kernel switch.
// All classes share the link's rate; data goes by priority, and the control class has its share.
std::string port_queues_batch(const HostPlan& plan, std::size_t index,
                              const spillway_port_config& port);

struct HostLinks {
  std::vector<net::UniqueFd> host_namespaces;  // in the plan's order
  bool hosts_pace = true;  // false: no token bucket in this kernel; only the fabric's links pace
};

// `tcp` is the congestion control of all hosts; empty: the kernel's.
base::Result<HostLinks> set_up_links(const HostPlan& plan, const std::string& tcp);

// Makes the queues of port_queues_batch() behind the ports of a kernel switch.
base::Status set_up_port_queues(const HostPlan& plan, const spillway_port_config& port);

// Fails if `tcp` is not available on this machine, and lists what is.
base::Status check_congestion_control(const std::string& tcp);

}  // namespace spillway::lab
