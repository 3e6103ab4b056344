// SPDX-License-Identifier: Apache-2.0
//
// Any text as a scenario and as a topology. A refusal must say why; what is accepted must be what
// its users rely on: a port config and faults that validate() takes, a topology that is whole.
#include <string_view>

#include "dataplane/port_config.h"
#include "fuzzing.h"
#include "sim/scenario.h"
#include "sim/topology_text.h"

using namespace spillway;
using spillway::fuzzing::require;

namespace {

void try_scenario(std::string_view text) {
  const base::Result<sim::Scenario> scenario = sim::parse_scenario(text);
  if (!scenario.ok()) {
    require(!scenario.status().message().empty());
    return;
  }
  require(dataplane::validate(scenario->port).ok());
  for (const sim::Fault& fault : scenario->faults) {
    require(sim::validate(fault).ok());
  }
  for (const sim::TenantSpec& tenant : scenario->tenants) {
    require(tenant.from != tenant.to && tenant.on > base::Duration());
    require(tenant.rate == base::BitRate() ? tenant.share > 0.0
                                           : sim::validate_rate(tenant.rate).ok());
  }
}

void try_topology(std::string_view text) {
  const base::Result<sim::Topology> topology = sim::parse_topology(text);
  if (!topology.ok()) {
    require(!topology.status().message().empty());
    return;
  }
  require(sim::validate(*topology).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_scenario(text);
  try_topology(text);
  return 0;
}
