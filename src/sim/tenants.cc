// SPDX-License-Identifier: Apache-2.0
#include "sim/tenants.h"

#include "base/random.h"
#include "sim/udp_tenant.h"

namespace spillway::sim {
namespace {

// Any fixed key: tenants only have to get labels that look random to a switch's hash.
constexpr std::uint64_t kLabelKey = 0x74656E616E747321;

void add_udp(const TenantPlan& plan, std::uint32_t number, Network& network) {
  const std::uint32_t label = base::random_block(kLabelKey, {number, plan.from, plan.to, 0})[0];
  const std::uint8_t far = network.add_stack(plan.to, std::make_unique<SinkStack>());
  network.add_stack(plan.from, std::make_unique<UdpTenantStack>(plan, far, label));
  network.wake(plan.from);
}

}  // namespace

base::Status Tenants::add_to(Network& network, const Topology& topology,
                             std::span<const TenantSpec> tenants) {
  std::uint32_t number = 0;
  for (const TenantSpec& tenant : tenants) {
    const base::Result<TenantPlan> plan = plan_tenant(tenant, topology);
    if (!plan.ok()) {
      return plan.status();
    }
    if (plan->protocol == TenantProtocol::kUdp) {
      add_udp(*plan, number++, network);
    } else {
      tcp_.push_back(std::make_unique<TcpTenant>(*plan, number++, network));
    }
  }
  return {};
}

}  // namespace spillway::sim
