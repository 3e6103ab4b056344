// SPDX-License-Identifier: Apache-2.0
//
// A lab's links in the kernel: veth pairs, addresses, neighbours, offloads off, rates at the hosts'
// ends. iproute2 makes them. The ..._batch() functions return the text for its batch mode; they are
// pure and for any thread. The set_up_...() functions run it, on a thread in the fabric's network
// namespace.
//
// Every host has a veth pair: `port<n>` stays in the fabric's namespace, `eth0` goes to the host's.
// Neighbours are static, so that no ARP or neighbour discovery crosses the fabric. At the host's
// end, a token bucket of the link's rate makes senders wait as a network card would.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "lab/network/host_plan.h"
#include "net/system_call.h"
#include "switch/dataplane/port.h"

namespace spillway::lab {

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
