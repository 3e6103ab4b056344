// SPDX-License-Identifier: Apache-2.0
#include "sim/link_faults.h"

namespace spillway::sim {
namespace {

constexpr std::uint64_t kMostFlippedBits = 8;
constexpr double kFullFrame = 1538;   // bytes on the wire
constexpr double kBurstsOfPause = 4;  // that a burst does not outlive

bool holds(const Fault& fault, base::Instant now) {
  return now >= fault.from && now < fault.until;
}

}  // namespace

void LinkFaults::add(const Fault& fault, std::uint64_t link_key, base::BitRate rate) {
  const auto ordinal = static_cast<std::uint32_t>(active_.size());
  const auto bytes = static_cast<std::int64_t>(kBurstsOfPause * fault.burst_packets * kFullFrame);
  active_.push_back({.fault = fault,
                     .random = base::RandomSequence(base::derive_key(link_key, {ordinal, 0, 0, 0})),
                     .longest_pause = base::transmission_time(base::bytes(bytes), rate)});
}

bool LinkFaults::down(base::Instant now) const {
  for (const Active& active : active_) {
    if (active.fault.kind == FaultKind::kDown && holds(active.fault, now)) {
      return true;
    }
  }
  return false;
}

// Gilbert-Elliott with two states, of which the bad one loses everything: it is left with
// probability 1 / burst and entered so that the bad state's share of packets is `share`. A burst is
// also over after a pause: it is something that happens to a link, not to a patient sender.
bool LinkFaults::loses(Active& active, base::Instant now) {
  const Fault& fault = active.fault;
  active.in_burst = active.in_burst && now - active.last <= active.longest_pause;
  active.last = now;
  if (fault.kind != FaultKind::kBursty) {
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
  for (std::uint64_t flips = 1 + random.next_below(kMostFlippedBits); flips > 0; --flips) {
    const std::uint64_t bit = random.next_below(bytes.size() * 8);
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
  }
}

PacketFate LinkFaults::act(Packet& packet, PacketPool& pool, base::Instant now) {
  PacketFate fate;
  for (Active& active : active_) {
    const Fault& fault = active.fault;
    if (!holds(fault, now)) {
      continue;
    }
    switch (fault.kind) {
      case FaultKind::kLoss:
      case FaultKind::kBursty:
      case FaultKind::kGray:
        fate.lost |= loses(active, now);
        break;
      case FaultKind::kDown:
        fate.lost = true;
        break;
      case FaultKind::kDuplicate:
        fate.twice |= active.random.next_unit() < fault.share;
        break;
      case FaultKind::kReorder:
        if (active.random.next_unit() < fault.share) {
          fate.extra_delay += base::nanoseconds(static_cast<std::int64_t>(
              active.random.next_below(static_cast<std::uint64_t>(fault.delay.count()) + 1)));
        }
        break;
      case FaultKind::kCorrupt:
        if (active.random.next_unit() < fault.share) {
          damage(packet, pool, active.random);
        }
        break;
      case FaultKind::kHostDeath:
      case FaultKind::kClockSkew:
        SPILLWAY_CHECK(false);  // a host's
    }
  }
  return fate;
}

}  // namespace spillway::sim
