// SPDX-License-Identifier: Apache-2.0
#include "sim/udp_tenant.h"

#include "sim/transmitter.h"
#include "transport/endpoint.h"

namespace spillway::sim {

UdpTenantStack::UdpTenantStack(const TenantPlan& plan, std::uint8_t far_stack, std::uint32_t label)
    : plan_(plan), far_stack_(far_stack), label_(label), period_(plan.start) {}

// Without pauses one period lasts for ever.
base::Instant UdpTenantStack::due() const {
  const base::Bytes before = base::bytes(number_ * (kTenantFrameBytes + kWireOverhead));
  const base::Duration offset = base::transmission_time(before, plan_.rate);
  const bool is_over = plan_.off > base::Duration() && offset >= plan_.on;
  return is_over ? period_ + plan_.on + plan_.off : period_ + offset;
}

// Leaves periods that have ended behind, with what was not sent in them.
void UdpTenantStack::enter_period_of(base::Instant now) {
  if (plan_.off == base::Duration() || now < period_ + plan_.on) {
    return;
  }
  const base::Duration whole = plan_.on + plan_.off;
  const std::int64_t passed = (now - period_).count() / whole.count();
  if ((now - period_) - whole * passed < plan_.on) {
    period_ = period_ + whole * passed;
  } else {
    period_ = period_ + whole * (passed + 1);
  }
  number_ = 0;
}

// A packet that is due waits for the card, not for the clock.
base::Instant UdpTenantStack::next_timeout() const {
  const base::Instant next = due();
  return next > seen_ ? next : transport::kNever;
}

bool UdpTenantStack::poll_transmit(base::Instant now, Packet& packet) {
  seen_ = now;
  enter_period_of(now);
  if (due() > now) {
    return false;
  }
  ++number_;
  packet.to = plan_.to;
  packet.kind = PacketKind::kOther;
  packet.stack = far_stack_;
  packet.label = label_;
  packet.bytes = kTenantFrameBytes;
  return true;
}

}  // namespace spillway::sim
