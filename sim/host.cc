// SPDX-License-Identifier: Apache-2.0
#include "sim/host.h"

#include <algorithm>
#include <utility>

namespace spillway::sim {
namespace {

// Between two ranks of one host: a system call and a wake-up.
constexpr base::Duration kLoopbackDelay = base::microseconds(5);

bool is_data(const Packet& packet) {
  return packet.kind == PacketKind::kSpillwayData || packet.kind == PacketKind::kSpillwaySum ||
         packet.kind == PacketKind::kOther ||
         (packet.kind == PacketKind::kTcp && !packet.tcp.is_ack);
}

}  // namespace

Host::Host(HostId id, EventQueue& events, PacketPool& pool, const LinkEnd& link)
    : id_(id), events_(&events), pool_(&pool), transmitter_(events, pool, link) {}

std::uint8_t Host::add_stack(std::unique_ptr<HostStack> stack) {
  SPILLWAY_CHECK(stacks_.size() < UINT8_MAX);
  stacks_.push_back({std::move(stack)});
  first_stack_ = stacks_.front().stack.get();
  return static_cast<std::uint8_t>(stacks_.size() - 1);
}

void Host::wake(base::Instant now) {
  if (!wake_pending_) {
    wake_pending_ = true;
    events_->schedule(now, *this, event(EventKind::kWake));
  }
}

void Host::on_event(std::uint64_t argument, base::Instant now) {
  const auto value = static_cast<std::uint32_t>(argument);
  switch (static_cast<EventKind>(argument >> 32)) {
    case EventKind::kArrival:
      receive(value, now);
      break;
    case EventKind::kNicFree:
      use_nic(now);
      set_timer(now);
      break;
    case EventKind::kTimer:
      if (value == timer_generation_) {
        timer_at_ = transport::kNever;
        run_timeouts(now);
      }
      break;
    case EventKind::kWake:
      wake_pending_ = false;
      poll_stacks(now);
      break;
  }
}

void Host::prefetch(std::uint64_t argument, unsigned step) const {
  if (first_stack_ == nullptr) {
    return;
  }
  if (step > 0) {
    first_stack_->prefetch(step - 1);
    return;
  }
  if (static_cast<EventKind>(argument >> 32) == EventKind::kArrival) {
    pool_->prefetch(static_cast<PacketIndex>(argument));
  }
  __builtin_prefetch(first_stack_);
  __builtin_prefetch(stacks_.data());
  __builtin_prefetch(&transmitter_);
}

void Host::receive(PacketIndex index, base::Instant now) {
  if (dead_) {
    ++counters_.discarded;
    pool_->release(index);
    return;
  }
  Packet& packet = (*pool_)[index];
  SPILLWAY_CHECK(packet.to == id_ && packet.stack < stacks_.size());
  ++counters_.delivered;
  counters_.received_bytes += packet.from == id_ ? 0 : packet.bytes;
  counters_.delivered_data += is_data(packet) ? 1 : 0;
  RunningStack& running = stacks_[packet.stack];
  running.stack->on_packet(packet, clock_.host_time(now));
  pool_->release(index);
  note_timeout(running);
  use_nic(now);
  set_timer(now);
}

void Host::run_timeouts(base::Instant now) {
  if (dead_) {
    return;
  }
  for (RunningStack& running : stacks_) {
    if (running.timeout <= now) {
      running.stack->on_timeout(clock_.host_time(now));
      note_timeout(running);
    }
  }
  use_nic(now);
  // A stack that is still due was called at this instant already: time must advance.
  set_timer(now + base::nanoseconds(1));
}

void Host::poll_stacks(base::Instant now) {
  if (dead_) {
    return;
  }
  for (RunningStack& running : stacks_) {
    note_timeout(running);
  }
  use_nic(now);
  set_timer(now);
}

void Host::use_nic(base::Instant now) {
  if (dead_ || transmitter_.busy(now)) {
    return;
  }
  const auto count = static_cast<std::uint32_t>(stacks_.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    turn_ = turn_ + 1 < count ? turn_ + 1 : 0;
    if (send_from(stacks_[turn_], now)) {
      events_->schedule(transmitter_.busy_until(), *this, event(EventKind::kNicFree));
      return;
    }
  }
}

// Sends the stack's next packet; false if it has none. Packets to another stack of this host do not
// pass the NIC.
bool Host::send_from(RunningStack& running, base::Instant now) {
  while (true) {
    const PacketIndex index = pool_->allocate();
    Packet& packet = (*pool_)[index];
    const bool sends = running.stack->poll_transmit(clock_.host_time(now), packet);
    note_timeout(running);
    if (!sends) {
      pool_->release(index);
      return false;
    }
    SPILLWAY_CHECK(packet.bytes >= kFrameHeaderBytes);
    packet.from = id_;
    packet.sent_bytes = packet.bytes;
    if (packet.to != id_) {
      transmitter_.send(index, now);
      return true;
    }
    events_->schedule(now + kLoopbackDelay, *this, event(EventKind::kArrival, index));
  }
}

// Makes sure that the timer fires by the earliest timeout, though not before `earliest`.
void Host::set_timer(base::Instant earliest) {
  if (dead_) {
    return;
  }
  base::Instant wanted = transport::kNever;
  for (const RunningStack& running : stacks_) {
    wanted = std::min(wanted, running.timeout);
  }
  wanted = std::max(wanted, earliest);
  if (wanted == transport::kNever || timer_at_ <= wanted) {
    return;
  }
  timer_at_ = wanted;
  ++timer_generation_;
  events_->schedule(wanted, *this, event(EventKind::kTimer, timer_generation_));
}

}  // namespace spillway::sim
