// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a UDP tenant (tenant.h): a stack that sends full frames at a rate during its
// periods, and one that takes what comes. Packet k of a period is due when k packets at the rate
// would have left, so a period has the right number of them however the nanoseconds fall. Constant
// memory and work. One thread.
#pragma once

#include <cstdint>

#include "sim/host_stack.h"
#include "sim/tenant.h"

namespace spillway::sim {

inline constexpr std::uint32_t kTenantFrameBytes = 1514;

class UdpTenantStack final : public HostStack {
 public:
  // `far_stack`: the number of the stack at the other end.
  UdpTenantStack(const TenantPlan& plan, std::uint8_t far_stack, std::uint32_t label);

  void expect_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_packet(Packet& /*packet*/, base::Instant /*now*/) override {}
  void on_timeout(base::Instant now) override { seen_ = now; }
  base::Instant next_timeout() const override;
  bool poll_transmit(base::Instant now, Packet& packet) override;

 private:
  base::Instant due() const;
  void enter_period_of(base::Instant now);

  TenantPlan plan_;
  std::uint8_t far_stack_;
  std::uint32_t label_;
  base::Instant period_;     // its beginning
  std::int64_t number_ = 0;  // of the next packet in it
  base::Instant seen_{base::nanoseconds(-1)};
};

// Takes packets and does nothing with them.
class SinkStack final : public HostStack {
 public:
  void expect_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_packet(Packet& /*packet*/, base::Instant /*now*/) override {}
  void on_timeout(base::Instant /*now*/) override {}
  base::Instant next_timeout() const override { return transport::kNever; }
  bool poll_transmit(base::Instant /*now*/, Packet& /*packet*/) override { return false; }
};

}  // namespace spillway::sim
