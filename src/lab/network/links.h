// SPDX-License-Identifier: Apache-2.0
//
// A lab's links in the kernel: veth pairs, addresses, neighbours, offloads off, rates at the hosts'
// ends. iproute2 makes them; what it is told is the text of its batch mode, which is pure and any
// thread's. set_up_...() run it, on a thread that is in the fabric's network namespace.
//
// Every host has a veth pair: `port<n>` stays in the fabric's namespace, `eth0` goes to the host's.
// Neighbours are entered by hand, so that no ARP or neighbour discovery crosses the fabric. At the
// host's end a token bucket of the link's rate makes senders wait as a network card would.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "dataplane/port.h"
#include "lab/network/host_plan.h"
#include "net/system_call.h"

namespace spillway::lab {

// For `ip -batch -` in the fabric's namespace. `namespace_fds[n]` is open in the process that reads
// it.
std::string fabric_links_batch(const HostPlan& plan, const std::vector<int>& namespace_fds);

// For `ip -batch -` in the namespace of host `index`.
std::string host_links_batch(const HostPlan& plan, std::size_t index);

// The same, behind it: TCP connections to other hosts have this congestion control.
std::string congestion_control_batch(const HostPlan& plan, std::size_t index,
                                     const std::string& tcp);

// For `tc -batch -` there.
std::string host_shaping_batch(const HostPlan& plan, std::size_t index);

// The number of the queueing discipline of port_queues_batch(); its classes 1 to 9 are a port's
// queues 0 to 8 (dataplane/port.h).
inline constexpr std::uint16_t kPortQueuesMajor = 0x5357;

// For `tc -batch -` in the fabric's namespace: what really waits at port `index` of a switch in the
// kernel. One link's rate for all classes, data by priority, the control class with its share.
std::string port_queues_batch(const HostPlan& plan, std::size_t index,
                              const spillway_port_config& port);

struct HostLinks {
  std::vector<net::UniqueFd> host_namespaces;  // in the plan's order
  bool hosts_pace = true;  // false: no token bucket in this kernel; the fabric's links alone pace
};

// `tcp` is the congestion control of all hosts; empty: the kernel's.
base::Result<HostLinks> set_up_links(const HostPlan& plan, const std::string& tcp);

// Queues behind the ports of a switch in the kernel: those of port_queues_batch().
base::Status set_up_port_queues(const HostPlan& plan, const spillway_port_config& port);

// An error that lists what there is, where `tcp` is not available on this machine.
base::Status check_congestion_control(const std::string& tcp);

}  // namespace spillway::lab
