// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary text as a scenario and as a topology. A refusal must say why. An accepted text
// must give values that its users rely on: a port config and faults that validate() accepts, and a
// valid topology.
#include <string_view>

#include "fuzzing.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/topology.h"
#include "switch/dataplane/port_config.h"

using namespace spillway;
using spillway::fuzzing::require;

namespace {

void try_scenario(std::string_view text) {
  const base::Result<scenario::Scenario> scenario = scenario::parse_scenario(text);
  if (!scenario.ok()) {
    require(!scenario.status().message().empty());
    return;
  }
  require(dataplane::validate(scenario->port).ok());
  for (const scenario::Fault& fault : scenario->faults) {
    require(scenario::validate(fault).ok());
  }
  for (const scenario::Tenant& tenant : scenario->tenants) {
    require(tenant.from != tenant.to && tenant.on > base::Duration());
    require(tenant.rate == base::BitRate() ? tenant.share > 0.0
                                           : scenario::validate_rate(tenant.rate).ok());
  }
}

void try_topology(std::string_view text) {
  const base::Result<scenario::Topology> topology = scenario::parse_topology(text);
  if (!topology.ok()) {
    require(!topology.status().message().empty());
    return;
  }
  require(scenario::validate(*topology).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_scenario(text);
  try_topology(text);
  return 0;
}
