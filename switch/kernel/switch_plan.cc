// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/kernel_switch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/scenario/scenario.h"
#include "switch/dataplane/bpf/switch_maps.h"

namespace spillway::kernel {
namespace {

base::Status unsupported(std::string_view what) {
  return base::invalid_argument(
      fmt::format("{}: the switch in the kernel has no such thing; the one in user space has "
                  "(`spillway switch run`, `spillway lab run --dataplane user`)",
                  what));
}

base::Status check_fault(const scenario::Fault& fault) {
  const bool is_loss =
      fault.kind == scenario::FaultKind::kGray || fault.kind == scenario::FaultKind::kLoss;
  if (!is_loss || fault.from != base::Instant() || fault.until != transport::kNever) {
    return unsupported("a fault other than loss that lasts (kind=gray or kind=loss)");
  }
  return {};
}

base::Status check_topology(const scenario::Topology& topology) {
  if (topology.switch_names.size() != 1) {
    return unsupported(fmt::format("a topology of {} switches", topology.switch_names.size()));
  }
  if (topology.hosts() > SPILLWAY_MAX_PORTS) {
    return unsupported(fmt::format("a switch of more than {} ports", SPILLWAY_MAX_PORTS));
  }
  const bool is_far = std::ranges::any_of(
      topology.links, [](const scenario::Link& link) { return link.delay > kNaturalDelay; });
  return is_far ? unsupported(fmt::format("a link's delay of more than {} us",
                                          kNaturalDelay.count() / 1000))
                : base::Status();
}

spillway_link link_of(base::BitRate rate) {
  const auto bits = static_cast<std::uint64_t>(rate.count());
  // Bytes per ns with 24 fraction bits, computed from kbit/s to fit 64 bits.
  const std::uint64_t fixed = ((bits / 1000 << SPILLWAY_RATE_SHIFT) + 4'000'000) / 8'000'000;
  return {.rate = static_cast<std::uint32_t>(fixed), .lost_of_2_32 = 0};
}

std::uint32_t of_2_32(double share) {
  return static_cast<std::uint32_t>(std::min(std::round(share * 4294967296.0), 4294967295.0));
}

// Faults of one direction of a link combine as independent losses.
void add_loss(const scenario::Scenario& scenario, PlannedPort& port) {
  double kept = 1.0;
  for (const scenario::Fault& fault : scenario.faults) {
    kept *= fault.link == port.name ? 1.0 - fault.share : 1.0;
  }
  port.link.lost_of_2_32 = of_2_32(1.0 - kept);
}

// Gray loss on ingress is refused: no program models it.
base::Status check_fault_links(const scenario::Scenario& scenario, const SwitchPlan& plan) {
  for (const scenario::Fault& fault : scenario.faults) {
    const bool known = std::ranges::any_of(
        plan.ports, [&fault](const PlannedPort& port) { return port.name == fault.link; });
    if (!known) {
      return unsupported(fmt::format("a fault of link {} (links of the switch are like {})",
                                     fault.link, plan.ports.front().name));
    }
  }
  return {};
}

}  // namespace

base::Status check_scenario(const scenario::Scenario& scenario) {
  const base::Result<scenario::Topology> topology = scenario::build_topology(scenario);
  if (!topology.ok()) {
    return topology.status();
  }
  if (base::Status status = check_topology(*topology); !status.ok()) {
    return status;
  }
  for (const scenario::Fault& fault : scenario.faults) {
    if (base::Status status = check_fault(fault); !status.ok()) {
      return status;
    }
  }
  return scenario.tenants.empty() ? base::Status() : unsupported("a tenant");
}

base::Result<SwitchPlan> plan_switch(const scenario::Scenario& scenario,
                                     std::span<const fabric::PortAttachment> attachments) {
  if (base::Status status = check_scenario(scenario); !status.ok()) {
    return status;
  }
  const scenario::Topology topology = scenario::build_topology(scenario).value();
  SwitchPlan plan;
  for (scenario::HostId host = 0; host < topology.hosts(); ++host) {
    if (host >= attachments.size() || attachments[host].interface.empty()) {
      return unsupported(
          fmt::format("a relay (host {} has no interface=)", topology.host_names[host]));
    }
    PlannedPort& port = plan.ports.emplace_back();
    port.name = fmt::format("{}->{}", topology.switch_names.front(), topology.host_names[host]);
    port.interface = attachments[host].interface;
    const auto link = std::ranges::find_if(
        topology.links, [host](const scenario::Link& of) { return of.a == host || of.b == host; });
    port.config = link->port;
    port.link = link_of(link->rate);
    add_loss(scenario, port);
  }
  if (!topology.adders.empty()) {
    plan.adder = topology.adders.front();
  }
  if (base::Status status = check_fault_links(scenario, plan); !status.ok()) {
    return status;
  }
  return plan;
}

}  // namespace spillway::kernel
