// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/port_stack.h"

#include <algorithm>

#include "transport/endpoint.h"

namespace spillway::fabric {

void PortStack::push(sim::PacketIndex index, base::Instant at) {
  const std::uint32_t bytes = pool_[index].bytes;
  if (waiting_bytes_ + bytes > kIngressBytes) {
    ++dropped_;
    pool_.release(index);
    return;
  }
  waiting_bytes_ += bytes;
  waiting_.push_back({waiting_.empty() ? at : std::max(at, waiting_.back().at), index});
}

void PortStack::on_packet(sim::Packet& packet, base::Instant now) {
  port_.write({.bytes = pool_.payload(packet),
               .dscp = packet.dscp,
               .ecn = packet.ecn,
               .is_cut = packet.bytes < packet.sent_bytes,
               .due = zero_ + now.since_zero()});
}

// A frame that has already arrived waits for the emulated card, not for the clock.
base::Instant PortStack::next_timeout() const {
  return waiting_.empty() || waiting_.front().at <= seen_ ? transport::kNever : waiting_.front().at;
}

bool PortStack::poll_transmit(base::Instant now, sim::Packet& packet) {
  seen_ = now;
  if (waiting_.empty() || waiting_.front().at > now) {
    return false;
  }
  const sim::PacketIndex index = waiting_.front().packet;
  waiting_.pop_front();
  sim::Packet& kept = pool_[index];
  waiting_bytes_ -= kept.bytes;
  packet = kept;
  packet.next = sim::kNone;
  kept.payload = sim::kNone;  // moved to `packet`
  pool_.release(index);
  return true;
}

}  // namespace spillway::fabric
