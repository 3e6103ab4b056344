// SPDX-License-Identifier: Apache-2.0
#include "sim/transmitter.h"

namespace spillway::sim {

Transmitter::Transmitter(EventQueue& events, PacketPool& pool, const LinkEnd& link)
    : events_(&events), pool_(&pool), link_(link) {}

// In 64 bits: 2^20 bytes x 8 x 10^9 is below 2^53. Starting the remainder at rate - 1 rounds the
// first frame up.
void Transmitter::occupy(std::uint32_t bytes, base::Instant now) {
  const auto rate = static_cast<std::uint64_t>(link_.rate.count());
  if (now != busy_until_) {
    remainder_ = rate - 1;
  }
  const std::uint64_t bit_nanoseconds =
      std::uint64_t{bytes + kWireOverhead} * 8 * 1'000'000'000 + remainder_;
  busy_until_ = now + base::nanoseconds(static_cast<std::int64_t>(bit_nanoseconds / rate));
  remainder_ = bit_nanoseconds % rate;
}

void Transmitter::send(PacketIndex index, base::Instant now) {
  SPILLWAY_CHECK(!busy(now));
  const std::uint32_t bytes = (*pool_)[index].bytes;
  occupy(bytes, now);
  ++counters_.packets;
  counters_.bytes += bytes;
  if (faults_ != nullptr) [[unlikely]] {
    arrive_with_faults(index, now);
    return;
  }
  events_->schedule(busy_until_ + link_.delay, *link_.far, index);
}

void Transmitter::arrive_with_faults(PacketIndex index, base::Instant now) {
  const PacketFate fate = faults_->act((*pool_)[index], *pool_, now);
  if (fate.lost) {
    ++counters_.lost;
    pool_->release(index);
    return;
  }
  const base::Instant arrival = busy_until_ + link_.delay + fate.extra_delay;
  if (fate.twice) {
    ++counters_.duplicated;
    events_->schedule(arrival, *link_.far, pool_->duplicate(index));
  }
  events_->schedule(arrival, *link_.far, index);
}

void Transmitter::add_fault(const Fault& fault) {
  if (faults_ == nullptr) {
    faults_ = std::make_unique<LinkFaults>();
  }
  faults_->add(fault, link_.key, link_.rate);
}

}  // namespace spillway::sim
