// SPDX-License-Identifier: Apache-2.0
//
// What iproute2 is told to make a lab's links, as the text of its batch mode. Pure; link_setup runs
// it.
//
// Every host has a veth pair: `port<n>` stays in the fabric's namespace, `eth0` goes to the host's.
// Neighbours are entered by hand, so that no ARP or neighbour discovery crosses the fabric. At the
// host's end a token bucket of the link's rate makes senders wait as a network card would.
#pragma once

#include <string>
#include <vector>

#include "lab/host_plan.h"

namespace spillway::lab {

// For `ip -batch -` in the fabric's namespace. `namespace_fds[n]` is open in the process that reads
// it.
std::string fabric_links_batch(const HostPlan& plan, const std::vector<int>& namespace_fds);

// For `ip -batch -` in the namespace of host `index`.
std::string host_links_batch(const HostPlan& plan, std::size_t index);

// For `tc -batch -` there.
std::string host_shaping_batch(const HostPlan& plan, std::size_t index);

}  // namespace spillway::lab
