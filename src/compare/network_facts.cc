// SPDX-License-Identifier: Apache-2.0
#include "compare/network_facts.h"

#include <fmt/format.h>

#include "dataplane/port_config.h"

namespace spillway::compare {
namespace {

std::string rate_text(base::BitRate rate) {
  const auto bits = static_cast<double>(rate.count());
  return bits >= 1e9 ? fmt::format("{:g} Gbit/s", bits / 1e9)
                     : fmt::format("{:g} Mbit/s", bits / 1e6);
}

std::string duration_text(base::Duration duration) {
  const auto nanoseconds = static_cast<double>(duration.count());
  return nanoseconds >= 1e6 ? fmt::format("{:g} ms", nanoseconds / 1e6)
                            : fmt::format("{:g} us", nanoseconds / 1e3);
}

std::string shape_text(const sim::TopologySpec& topology) {
  switch (topology.kind) {
    case sim::TopologyKind::kOneSwitch:
      return fmt::format("{} under one switch", topology.hosts);
    case sim::TopologyKind::kLeafSpine:
      return fmt::format("{} under {} leaves and {} spines", topology.hosts, topology.leaves,
                         topology.spines);
    case sim::TopologyKind::kFatTree:
      return fmt::format("a fat tree of {}-port switches", topology.k);
    case sim::TopologyKind::kFile:
      break;
  }
  return topology.file;
}

std::string tenant_text(const sim::TenantSpec& tenant) {
  const std::string rate = tenant.rate > base::BitRate()
                               ? rate_text(tenant.rate)
                               : fmt::format("{:g} % of the link", tenant.share * 100);
  const std::string pauses = tenant.off > base::Duration()
                                 ? fmt::format(" for {} of every {}", duration_text(tenant.on),
                                               duration_text(tenant.on + tenant.off))
                                 : "";
  return fmt::format("{} to {}: {}{}", tenant.from, tenant.to, rate, pauses);
}

std::string tenants_text(const std::vector<sim::TenantSpec>& tenants) {
  std::string text;
  for (const sim::TenantSpec& tenant : tenants) {
    text += (text.empty() ? "" : "; ") + tenant_text(tenant);
  }
  return text.empty() ? "none" : text;
}

}  // namespace

std::vector<Fact> network_facts(const lab::LabOptions& options) {
  const sim::Scenario& scenario = options.scenario;
  const auto mode = static_cast<spillway_port_mode>(scenario.port.mode);
  return {{"hosts", shape_text(scenario.topology)},
          {"links", fmt::format("{}, {} each way, MTU {}", rate_text(scenario.topology.rate),
                                duration_text(scenario.topology.delay), options.mtu)},
          {"switches", fmt::format("{}, {:g} KiB per queue", dataplane::port_mode_name(mode),
                                   scenario.port.queue_bytes / 1024.0)},
          {"background traffic", tenants_text(scenario.tenants)},
          {"faults", scenario.faults.empty() ? "none" : std::to_string(scenario.faults.size())},
          {"TCP", options.tcp.empty() ? "the machine's own" : options.tcp},
          {"seed", std::to_string(scenario.seed)}};
}

}  // namespace spillway::compare
