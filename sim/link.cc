// SPDX-License-Identifier: Apache-2.0
#include "sim/link.h"

#include "wire/packet.h"

namespace spillway::sim {
namespace {

constexpr std::uint64_t kMaxFlippedBits = 8;
constexpr double kFullFrame = 1538;   // bytes on the wire
constexpr double kBurstsOfPause = 4;  // longest pause within a burst, in lengths of the burst

bool holds(const scenario::Fault& fault, base::Instant now) {
  return now >= fault.from && now < fault.until;
}

}  // namespace

void LinkFaults::add(const scenario::Fault& fault, std::uint64_t link_key, base::BitRate rate) {
  const auto ordinal = static_cast<std::uint32_t>(active_.size());
  const auto bytes = static_cast<std::int64_t>(kBurstsOfPause * fault.burst_packets * kFullFrame);
  active_.push_back({.fault = fault,
                     .random = base::RandomSequence(base::derive_key(link_key, {ordinal, 0, 0, 0})),
                     .longest_pause = base::transmission_time(base::bytes(bytes), rate)});
}

bool LinkFaults::down(base::Instant now) const {
  for (const Active& active : active_) {
    if (active.fault.kind == scenario::FaultKind::kDown && holds(active.fault, now)) {
      return true;
    }
  }
  return false;
}

// Gilbert-Elliott with two states; the bad one loses everything. It is left with probability 1 /
// burst, and entered so that its share of packets is `share`. A long pause also ends a burst:
// bursts happen to a link in time, and a slow sender must not stretch them.
bool LinkFaults::loses(Active& active, base::Instant now) {
  const scenario::Fault& fault = active.fault;
  active.in_burst = active.in_burst && now - active.last <= active.longest_pause;
  active.last = now;
  if (fault.kind != scenario::FaultKind::kBursty) {
    return active.random.next_unit() < fault.share;
  }
  const double leave = 1.0 / fault.burst_packets;
  const double enter = fault.share >= 1.0 ? 1.0 : leave * fault.share / (1.0 - fault.share);
  const bool stays_bad = active.in_burst && active.random.next_unit() >= leave;
  active.in_burst =
      fault.share >= 1.0 || stays_bad || (!active.in_burst && active.random.next_unit() < enter);
  return active.in_burst;
}

void LinkFaults::damage(Packet& packet, PacketPool& pool, base::RandomSequence& random) {
  const base::MutableByteView bytes = pool.payload(packet);
  if (bytes.empty()) {
    packet.corrupt = true;
    return;
  }
  for (std::uint64_t flips = 1 + random.next_below(kMaxFlippedBits); flips > 0; --flips) {
    const std::uint64_t bit = random.next_below(bytes.size() * 8);
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
  }
}

PacketFate LinkFaults::act(Packet& packet, PacketPool& pool, base::Instant now) {
  PacketFate fate;
  for (Active& active : active_) {
    const scenario::Fault& fault = active.fault;
    if (!holds(fault, now)) {
      continue;
    }
    switch (fault.kind) {
      case scenario::FaultKind::kLoss:
      case scenario::FaultKind::kBursty:
      case scenario::FaultKind::kGray:
        fate.lost |= loses(active, now);
        break;
      case scenario::FaultKind::kDown:
        fate.lost = true;
        break;
      case scenario::FaultKind::kDuplicate:
        fate.twice |= active.random.next_unit() < fault.share;
        break;
      case scenario::FaultKind::kReorder:
        if (active.random.next_unit() < fault.share) {
          fate.extra_delay += base::nanoseconds(static_cast<std::int64_t>(
              active.random.next_below(static_cast<std::uint64_t>(fault.delay.count()) + 1)));
        }
        break;
      case scenario::FaultKind::kCorrupt:
        if (active.random.next_unit() < fault.share) {
          damage(packet, pool, active.random);
        }
        break;
      case scenario::FaultKind::kHostDeath:
      case scenario::FaultKind::kClockSkew:
      case scenario::FaultKind::kRestart:
        SPILLWAY_CHECK(false);  // host and switch faults
    }
  }
  return fate;
}

Transmitter::Transmitter(EventQueue& events, PacketPool& pool, const LinkEnd& link)
    : events_(&events), pool_(&pool), link_(link) {}

// Fits 64 bits: 2^20 bytes x 8 x 10^9 is below 2^53. A remainder that starts at rate - 1 rounds the
// first frame up.
void Transmitter::occupy(std::uint32_t bytes, base::Instant now) {
  const auto rate = static_cast<std::uint64_t>(link_.rate.count());
  if (now != busy_until_) {
    remainder_ = rate - 1;
  }
  const std::uint64_t bit_nanoseconds =
      std::uint64_t{bytes + SPILLWAY_WIRE_OVERHEAD} * 8 * 1'000'000'000 + remainder_;
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

void Transmitter::add_fault(const scenario::Fault& fault) {
  if (faults_ == nullptr) {
    faults_ = std::make_unique<LinkFaults>();
  }
  faults_->add(fault, link_.key, link_.rate);
}

}  // namespace spillway::sim
