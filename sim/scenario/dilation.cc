// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/dilation.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "transport/message.h"

namespace spillway::scenario {
namespace {

base::Duration longer(base::Duration duration, double factor) {
  return base::nanoseconds(std::llround(static_cast<double>(duration.count()) * factor));
}

base::Instant later(base::Instant at, double factor) {
  return at == transport::kNever ? at : base::Instant(longer(at.since_zero(), factor));
}

base::BitRate slower(base::BitRate rate, double factor) {
  return base::bits_per_second(std::llround(static_cast<double>(rate.count()) / factor));
}

std::uint32_t longer_lease(std::uint32_t microseconds, double factor) {
  return static_cast<std::uint32_t>(std::min(microseconds * factor, double{UINT32_MAX}));
}

}  // namespace

bool can_be_dilated(const Scenario& scenario) {
  return scenario.topology.kind != TopologyKind::kFile;
}

Scenario dilated(Scenario scenario, double factor) {
  SPILLWAY_CHECK(factor == 1 || (can_be_dilated(scenario) && factor > 0));
  TopologyOptions& topology = scenario.topology;
  topology.rate = slower(topology.rate, factor);
  if (topology.uplink_rate) {
    topology.uplink_rate = slower(*topology.uplink_rate, factor);
  }
  topology.delay = longer(topology.delay, factor);
  for (Tenant& tenant : scenario.tenants) {
    tenant.rate = slower(tenant.rate, factor);
    tenant.on = longer(tenant.on, factor);
    tenant.off = longer(tenant.off, factor);
    tenant.start = later(tenant.start, factor);
  }
  for (Fault& fault : scenario.faults) {
    fault.from = later(fault.from, factor);
    fault.until = later(fault.until, factor);
    fault.delay = longer(fault.delay, factor);
  }
  for (Aggregation& aggregation : scenario.aggregations) {
    aggregation.config.lease_us = longer_lease(aggregation.config.lease_us, factor);
  }
  return scenario;
}

}  // namespace spillway::scenario
