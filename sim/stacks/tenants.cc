// SPDX-License-Identifier: Apache-2.0
#include "sim/stacks/tenants.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/random.h"
#include "sim/host.h"
#include "transport/message.h"
#include "wire/packet.h"

namespace spillway::sim {
namespace {

// The two ends of a UDP tenant (scenario/job.h): a stack that sends full frames at a rate during
// its periods, and one that takes what arrives. Packet k of a period is due when k packets at the
// rate would have left, so rounding never changes a period's number of packets. Constant memory and
// work. One thread.
constexpr std::uint32_t kTenantFrameBytes = 1514;

class UdpTenantStack final : public HostStack {
 public:
  // `far_stack` is the number of the stack at the other end.
  UdpTenantStack(const scenario::TenantPlan& plan, std::uint8_t far_stack, std::uint32_t label);

  void expect_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_packet(Packet& /*packet*/, base::Instant /*now*/) override {}
  void on_timeout(base::Instant now) override { seen_ = now; }
  base::Instant next_timeout() const override;
  bool poll_transmit(base::Instant now, Packet& packet) override;

 private:
  base::Instant due() const;
  void enter_period_of(base::Instant now);

  scenario::TenantPlan plan_;
  std::uint8_t far_stack_;
  std::uint32_t label_;
  base::Instant period_;     // its start
  std::int64_t number_ = 0;  // of the next packet in the period
  base::Instant seen_{base::nanoseconds(-1)};
};

UdpTenantStack::UdpTenantStack(const scenario::TenantPlan& plan, std::uint8_t far_stack,
                               std::uint32_t label)
    : plan_(plan), far_stack_(far_stack), label_(label), period_(plan.start) {}

// Without pauses, one period lasts for ever.
base::Instant UdpTenantStack::due() const {
  const base::Bytes before = base::bytes(number_ * (kTenantFrameBytes + SPILLWAY_WIRE_OVERHEAD));
  const base::Duration offset = base::transmission_time(before, plan_.rate);
  const bool is_over = plan_.off > base::Duration() && offset >= plan_.on;
  return is_over ? period_ + plan_.on + plan_.off : period_ + offset;
}

// Skips periods that have ended, with the packets not sent in them.
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

// Any fixed key: labels only have to look random to a switch's hash.
constexpr std::uint64_t kTenantLabelKey = 0x74656E616E747321;

const TenantSink* add_udp(const scenario::TenantPlan& plan, std::uint32_t number,
                          Network& network) {
  const std::uint32_t label =
      base::random_block(kTenantLabelKey, {number, plan.from, plan.to, 0})[0];
  auto sink = std::make_unique<TenantSink>();
  const TenantSink* added = sink.get();
  const std::uint8_t far = network.add_stack(plan.to, std::move(sink));
  network.add_stack(plan.from, std::make_unique<UdpTenantStack>(plan, far, label));
  network.wake(plan.from);
  return added;
}

// ------------------------------------------------------------------ TCP

// The delay between two checks for the last acknowledgements of a flow that has arrived.
constexpr base::Duration kPatience = base::microseconds(100);

scenario::TcpConfig config_of(scenario::TenantProtocol protocol) {
  scenario::TcpConfig config;
  config.kind = protocol == scenario::TenantProtocol::kDctcp ? scenario::TcpKind::kDctcp
                                                             : scenario::TcpKind::kNewReno;
  return config;
}

std::uint64_t bytes_in(base::Duration duration, base::BitRate rate) {
  const __int128 bits = static_cast<__int128>(rate.count()) * duration.count() / 1'000'000'000;
  return static_cast<std::uint64_t>(bits / 8);
}

std::uint64_t bytes_per_period(const scenario::TenantPlan& plan) {
  return std::max<std::uint64_t>(bytes_in(plan.on, plan.rate), 1);
}

// The total time that a tenant's periods have been on by `now`.
base::Duration time_on(const scenario::TenantPlan& plan, base::Instant now) {
  const base::Duration since = std::max(now - plan.start, base::Duration());
  const base::Duration whole = plan.on + plan.off;
  if (plan.off == base::Duration()) {
    return since;
  }
  const std::int64_t periods = since.count() / whole.count();
  return plan.on * periods + std::min(since - whole * periods, plan.on);
}

// The rate of udp includes what surrounds a frame on the wire; the returned bytes do not.
std::uint64_t wanted_of(const scenario::TenantPlan& plan, base::Instant now) {
  const std::uint64_t bytes = bytes_in(time_on(plan, now), plan.rate);
  return plan.protocol == scenario::TenantProtocol::kUdp
             ? bytes / (kTenantFrameBytes + SPILLWAY_WIRE_OVERHEAD) * kTenantFrameBytes
             : bytes;
}

}  // namespace

TcpTenant::TcpTenant(const scenario::TenantPlan& plan, std::uint32_t number, Network& network)
    : plan_(plan), network_(network) {
  const scenario::TcpConfig config = config_of(plan.protocol);
  // Each end addresses the other's stack by its number on that host.
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

// The start of the next period; `now` for a tenant without pauses that is behind its periods.
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

base::Status Tenants::add_to(Network& network, const scenario::Topology& topology,
                             std::span<const scenario::Tenant> tenants) {
  std::uint32_t number = 0;
  for (const scenario::Tenant& tenant : tenants) {
    const base::Result<scenario::TenantPlan> plan = scenario::plan_tenant(tenant, topology);
    if (!plan.ok()) {
      return plan.status();
    }
    plans_.push_back(*plan);
    if (plan->protocol == scenario::TenantProtocol::kUdp) {
      sinks_.push_back(add_udp(*plan, number++, network));
    } else {
      tcp_.push_back(std::make_unique<TcpTenant>(*plan, number++, network));
    }
  }
  return {};
}

std::uint64_t Tenants::delivered_bytes() const {
  std::uint64_t bytes = 0;
  for (const TenantSink* sink : sinks_) {
    bytes += sink->bytes();
  }
  for (const auto& tenant : tcp_) {
    bytes += tenant->delivered_bytes();
  }
  return bytes;
}

std::uint64_t Tenants::wanted_bytes(base::Instant now) const {
  std::uint64_t bytes = 0;
  for (const scenario::TenantPlan& plan : plans_) {
    bytes += wanted_of(plan, now);
  }
  return bytes;
}

}  // namespace spillway::sim
