// SPDX-License-Identifier: Apache-2.0
//
// All tenants of a scenario (scenario/tenant.h), added to a network as stacks of their own on the
// hosts they use. Must outlive the network. Memory does not grow with time. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "scenario/tenant.h"
#include "scenario/topology.h"
#include "sim/network.h"
#include "sim/tcp/stack.h"

namespace spillway::sim {

// Starts a flow per period on a pair of TCP stacks, one after the other, and has them forget each
// flow that is over. A flow that takes longer than its period delays the next; periods it ran
// through are left out.
class TcpTenant final : public FlowListener {
 public:
  // Adds a stack to each of the two hosts. `number` tells this tenant's flows from others'.
  TcpTenant(const scenario::TenantPlan& plan, std::uint32_t number, Network& network);
  TcpTenant(const TcpTenant&) = delete;
  TcpTenant& operator=(const TcpTenant&) = delete;

  void on_flow_end(const FlowResult& result, base::Instant now) override;
  std::uint64_t flows_ended() const { return flows_ended_; }

 private:
  void start_flow(base::Instant now);
  base::Instant next_period(base::Instant now) const;
  void start_at(base::Instant when);

  scenario::TenantPlan plan_;
  Network& network_;
  TcpStack* sender_ = nullptr;
  TcpStack* receiver_ = nullptr;
  Flow flow_;
  std::uint64_t flows_ended_ = 0;
};

class Tenants {
 public:
  // Before the network runs; hosts must have room for a stack per tenant (kMaxStacks).
  base::Status add_to(Network& network, const scenario::Topology& topology,
                      std::span<const scenario::Tenant> tenants);

 private:
  std::vector<std::unique_ptr<TcpTenant>> tcp_;
};

}  // namespace spillway::sim
