// SPDX-License-Identifier: Apache-2.0
//
// Makes a lab's links in the kernel: veth pairs, addresses, neighbours, offloads off, rates at the
// hosts' ends. Runs on a thread that is in the fabric's network namespace.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "dataplane/port.h"
#include "lab/host_plan.h"
#include "net/unique_fd.h"

namespace spillway::lab {

struct LinkSetup {
  std::vector<net::UniqueFd> host_namespaces;  // in the plan's order
  bool hosts_pace = true;  // false: no token bucket in this kernel; the fabric's links alone pace
};

// `tcp` is the congestion control of all hosts; empty: the kernel's.
base::Result<LinkSetup> set_up_links(const HostPlan& plan, const std::string& tcp);

// Queues behind the ports of a switch in the kernel: as link_batches.h describes them.
base::Status set_up_port_queues(const HostPlan& plan, const spillway_port_config& port);

// An error that lists what there is, where `tcp` is not available on this machine.
base::Status check_congestion_control(const std::string& tcp);

}  // namespace spillway::lab
