// SPDX-License-Identifier: Apache-2.0
//
// All tenants of a scenario (scenario/job.h), each with its own stacks on the hosts it uses.
// Must outlive the network. Memory does not grow with time. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "sim/host.h"
#include "sim/network.h"
#include "sim/scenario/job.h"
#include "sim/scenario/topology.h"
#include "sim/stacks/tcp_stack.h"
#include "transport/message.h"

namespace spillway::sim {

// The receiving end of a UDP tenant: counts bytes.
class TenantSink final : public HostStack {
 public:
  void expect_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_packet(Packet& packet, base::Instant /*now*/) override { bytes_ += packet.bytes; }
  void on_timeout(base::Instant /*now*/) override {}
  base::Instant next_timeout() const override { return transport::kNever; }
  bool poll_transmit(base::Instant /*now*/, Packet& /*packet*/) override { return false; }

  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_ = 0;
};

// Starts one flow per period on a pair of TCP stacks, which forget each flow that has ended. A flow
// that takes longer than its period delays the next one. If there are pauses, the periods it
// overran are skipped.
class TcpTenant final : public FlowListener {
 public:
  // Adds a stack to each of the two hosts. `number` distinguishes the flows of different tenants.
  TcpTenant(const scenario::TenantPlan& plan, std::uint32_t number, Network& network);
  TcpTenant(const TcpTenant&) = delete;
  TcpTenant& operator=(const TcpTenant&) = delete;

  void on_flow_end(const FlowResult& result, base::Instant now) override;
  std::uint64_t flows_ended() const { return flows_ended_; }
  // A flow counts once it has ended.
  std::uint64_t delivered_bytes() const { return flows_ended_ * flow_.bytes; }

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
  // Call before the network runs; hosts must have room for a stack per tenant (kMaxStacks).
  base::Status add_to(Network& network, const scenario::Topology& topology,
                      std::span<const scenario::Tenant> tenants);

  // Bytes that arrived: frames of udp, payload of ended flows.
  std::uint64_t delivered_bytes() const;
  // Bytes that would have arrived by `now` without obstacles. A host's other traffic delays
  // tenants, so they may have sent less.
  std::uint64_t wanted_bytes(base::Instant now) const;

 private:
  std::vector<scenario::TenantPlan> plans_;
  std::vector<const TenantSink*> sinks_;  // owned by the network
  std::vector<std::unique_ptr<TcpTenant>> tcp_;
};

}  // namespace spillway::sim
