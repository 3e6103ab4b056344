// SPDX-License-Identifier: Apache-2.0
//
// Where the hosts of a topology are attached to the outside, as a scenario's `port` lines say.
// Every host has exactly one such line; errors name the line.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "net/address.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/topology.h"

namespace spillway::fabric {

// A network interface of the calling thread's network namespace or, if `interface` is empty, a UDP
// relay for Spillway packets only.
struct PortAttachment {
  std::string interface;
  net::SocketAddress listen;   // relay: other hosts send packets for this host here
  net::SocketAddress deliver;  // relay: the host receives them here
};

// One per host, in the topology's order.
base::Result<std::vector<PortAttachment>> port_attachments(const scenario::Scenario& scenario,
                                                           const scenario::Topology& topology);

}  // namespace spillway::fabric
