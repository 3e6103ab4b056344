// SPDX-License-Identifier: Apache-2.0
//
// All tenants of a scenario (tenant.h), added to a network as stacks of their own on the hosts they
// use. Must outlive the network. One thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "sim/network.h"
#include "sim/tcp_tenant.h"
#include "sim/tenant.h"
#include "sim/topology.h"

namespace spillway::sim {

class Tenants {
 public:
  // Before the network runs; hosts must have room for a stack per tenant (kMostStacks).
  base::Status add_to(Network& network, const Topology& topology,
                      std::span<const TenantSpec> tenants);

 private:
  std::vector<std::unique_ptr<TcpTenant>> tcp_;
};

}  // namespace spillway::sim
