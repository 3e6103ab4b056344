// SPDX-License-Identifier: Apache-2.0
//
// A scenario for the switch in the kernel: one switch, its ports with their configs, rates and gray
// loss, and what it adds. What the kernel cannot do (several switches, delays, other faults,
// tenants) is refused here; the error names the command that can. Plain values; nothing is opened.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/scenario/scenario.h"
#include "switch/dataplane/virtual_port.h"
#include "switch/fabric/port_attachments.h"

namespace spillway::kernel {

// Delays up to this count as those that kernels and cables have anyway.
inline constexpr base::Duration kNaturalDelay = base::microseconds(50);

struct PlannedPort {
  std::string name;  // "switch0->host3"
  std::string interface;
  spillway_port_config config = {};
  spillway_link link = {};
};

struct SwitchPlan {
  std::vector<PlannedPort> ports;  // in the topology's order of hosts
  scenario::Adder adder;           // without slots it does not add
};

// `attachments` are the ports' interfaces, one per host.
base::Result<SwitchPlan> plan_switch(const scenario::Scenario& scenario,
                                     std::span<const fabric::PortAttachment> attachments);

// Fails if the kernel switch cannot do this scenario, and says why.
base::Status check_scenario(const scenario::Scenario& scenario);

}  // namespace spillway::kernel
