// SPDX-License-Identifier: Apache-2.0
#include "sim/tcp_tenant.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace spillway::sim {
namespace {

// How long to wait for the last acknowledgements of a flow whose bytes have all arrived.
constexpr base::Duration kPatience = base::microseconds(100);

TcpConfig config_of(TenantProtocol protocol) {
  TcpConfig config;
  config.kind = protocol == TenantProtocol::kDctcp ? TcpKind::kDctcp : TcpKind::kNewReno;
  return config;
}

std::uint64_t bytes_per_period(const TenantPlan& plan) {
  const __int128 bits = static_cast<__int128>(plan.rate.count()) * plan.on.count() / 1'000'000'000;
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(bits / 8), 1);
}

}  // namespace

TcpTenant::TcpTenant(const TenantPlan& plan, std::uint32_t number, Network& network)
    : plan_(plan), network_(network) {
  const TcpConfig config = config_of(plan.protocol);
  // Each end addresses the other's stack by the number it has there.
  const std::uint8_t from_number = network.next_stack(plan.from);
  const std::uint8_t to_number = network.next_stack(plan.to);
  auto sender = std::make_unique<TcpStack>(config, to_number, *this);
  auto receiver = std::make_unique<TcpStack>(config, from_number, *this);
  sender_ = sender.get();
  receiver_ = receiver.get();
  network.add_stack(plan.from, std::move(sender));
  network.add_stack(plan.to, std::move(receiver));
  flow_.job = number;
  flow_.from = plan.from;
  flow_.to = plan.to;
  flow_.bytes = bytes_per_period(plan);
  start_at(plan.start);
}

void TcpTenant::start_at(base::Instant when) {
  network_.at(when, [this](base::Instant now) { start_flow(now); });
}

void TcpTenant::start_flow(base::Instant now) {
  if (sender_->is_sending(flow_.id)) {
    start_at(now + kPatience);
    return;
  }
  sender_->forget_flow(flow_.id);
  receiver_->forget_flow(flow_.id);
  ++flow_.id;
  receiver_->expect_flow(flow_, now);
  sender_->start_flow(flow_, now);
  network_.wake(flow_.to);
  network_.wake(flow_.from);
}

// The beginning of the first period that is not before `now`, or of the one that is under way where
// there is no pause between them.
base::Instant TcpTenant::next_period(base::Instant now) const {
  const base::Duration whole = plan_.on + plan_.off;
  const std::int64_t passed = (now - plan_.start).count() / whole.count();
  const base::Instant current = plan_.start + whole * passed;
  return plan_.off == base::Duration() && flows_ended_ <= static_cast<std::uint64_t>(passed)
             ? now
             : current + whole;
}

void TcpTenant::on_flow_end(const FlowResult& /*result*/, base::Instant /*now*/) {
  ++flows_ended_;
  start_at(next_period(network_.now()));
}

}  // namespace spillway::sim
