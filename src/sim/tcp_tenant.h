// SPDX-License-Identifier: Apache-2.0
//
// A TCP tenant (tenant.h): starts a flow per period on a pair of TCP stacks, one after the other,
// and has them forget each flow that is over, so memory does not grow with time. A flow that takes
// longer than its period delays the next; periods it ran through are left out.
//
// Must outlive the network's run. One thread.
#pragma once

#include <cstdint>

#include "sim/network.h"
#include "sim/tcp_stack.h"
#include "sim/tenant.h"

namespace spillway::sim {

class TcpTenant final : public FlowListener {
 public:
  // Adds a stack to each of the two hosts. `number` tells this tenant's flows from others'.
  TcpTenant(const TenantPlan& plan, std::uint32_t number, Network& network);
  TcpTenant(const TcpTenant&) = delete;
  TcpTenant& operator=(const TcpTenant&) = delete;

  void on_flow_end(const FlowResult& result, base::Instant now) override;
  std::uint64_t flows_ended() const { return flows_ended_; }

 private:
  void start_flow(base::Instant now);
  base::Instant next_period(base::Instant now) const;
  void start_at(base::Instant when);

  TenantPlan plan_;
  Network& network_;
  TcpStack* sender_ = nullptr;
  TcpStack* receiver_ = nullptr;
  Flow flow_;
  std::uint64_t flows_ended_ = 0;
};

}  // namespace spillway::sim
