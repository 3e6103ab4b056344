// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/attack.h"

#include <algorithm>
#include <array>

#include "wire/control_packet.h"

namespace spillway::sim {
namespace {

// Honest labels have the job's number in their upper half, which is never so large.
constexpr std::uint32_t kLabel = 0xA77AC000;
constexpr std::uint32_t kLabelMask = 0xFFFFF000;

constexpr std::uint32_t kAttackKeys = 1;

wire::PacketAuth wrong_auth(std::uint64_t seed) {
  std::array<std::uint8_t, wire::PacketAuth::kMinSecretBytes> secret{};
  base::store_le(secret.data(), ~seed);
  secret.back() = 1;
  return wire::PacketAuth::keyed(secret).value();
}

}  // namespace

std::optional<AttackKind> attack_of(const Packet& packet) {
  if ((packet.label & kLabelMask) != kLabel) {
    return std::nullopt;
  }
  return static_cast<AttackKind>(packet.label & ~kLabelMask);
}

AttackStack::AttackStack(const AttackPlan& plan, std::uint32_t hosts, PacketPool& pool)
    : plan_(plan),
      hosts_(hosts),
      pool_(pool),
      random_(base::derive_key(plan.seed, {kAttackKeys, 0, 0, 0})),
      own_auth_(wrong_auth(plan.seed)),
      left_(plan.packets) {}

// Keeps a sample of all that was heard so far, every packet as likely as any other.
void AttackStack::overhear(const Packet& packet, base::ByteView payload,
                           const wire::PacketAuth& auth) {
  ++heard_;
  Recording recording{packet, {payload.begin(), payload.end()}, &auth};
  if (recordings_.size() < kRecordings) {
    recordings_.push_back(std::move(recording));
  } else if (const std::uint64_t place = random_.next_below(heard_); place < kRecordings) {
    recordings_[place] = std::move(recording);
  }
}

base::Instant AttackStack::next_timeout() const {
  return left_ == 0 || is_ready_ ? transport::kNever : due_;
}

bool AttackStack::poll_transmit(base::Instant now, Packet& packet) {
  if (due_ == transport::kNever) {
    due_ = now + plan_.gap;
  }
  if (left_ == 0 || !is_ready_) {
    return false;
  }
  is_ready_ = false;
  due_ = now + plan_.gap;
  --left_;
  if (recordings_.empty()) {
    return false;
  }
  const Recording& recording = recordings_[random_.next_below(recordings_.size())];
  packet.to = victim_of(recording);
  packet.kind = recording.packet.kind;
  packet.stack = recording.packet.stack;
  packet.dscp = recording.packet.dscp;
  packet.ecn = recording.packet.ecn;
  packet.importance = recording.packet.importance;
  packet.priority = recording.packet.priority;
  switch (random_.next_below(4)) {
    case 0:
      replay(recording, packet);
      break;
    case 1:
      flip(recording, packet);
      break;
    case 2:
      make_up(recording, packet);
      break;
    default:
      make_noise(recording, packet);
  }
  return true;
}

// Mostly whom it was for; never himself, as nobody sends to himself.
HostId AttackStack::victim_of(const Recording& recording) {
  HostId victim = recording.packet.to;
  if (random_.next_below(4) == 0) {
    victim = static_cast<HostId>(random_.next_below(hosts_));
  }
  return victim == plan_.host ? (victim + 1) % hosts_ : victim;
}

void AttackStack::fill(const std::vector<std::uint8_t>& payload, AttackKind kind, Packet& packet) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  std::copy_n(payload.begin(), size, pool_.attach_payload(packet, size).begin());
  packet.bytes = kFrameHeaderBytes + size;
  packet.label = kLabel | static_cast<std::uint32_t>(kind);
}

void AttackStack::replay(const Recording& recording, Packet& packet) {
  if (recording.payload.empty()) {
    packet.data = recording.packet.data;
    packet.bytes = recording.packet.bytes;
    packet.label = kLabel | static_cast<std::uint32_t>(AttackKind::kReplay);
    return;
  }
  fill(recording.payload, AttackKind::kReplay, packet);
}

// A data packet whose head is whole may be used up to the flipped bit: that is no forgery.
void AttackStack::flip(const Recording& recording, Packet& packet) {
  if (recording.payload.empty()) {
    make_noise(recording, packet);
    return;
  }
  std::vector<std::uint8_t> payload = recording.payload;
  const std::uint64_t bit = random_.next_below(payload.size() * 8);
  payload[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
  const bool is_data = packet.kind == PacketKind::kSpillwayData;
  fill(payload, is_data ? AttackKind::kReplay : AttackKind::kForgery, packet);
}

// The end of some message, out of the blue.
void AttackStack::make_up(const Recording& recording, Packet& packet) {
  wire::ControlPacket control;
  if (recording.packet.kind != PacketKind::kSpillwayControl ||
      wire::open_control_packet(recording.payload, *recording.auth, control) !=
          wire::PacketFault::kNone) {
    make_noise(recording, packet);
    return;
  }
  control.type = random_.next_below(2) == 0 ? wire::ControlType::kStop : wire::ControlType::kWait;
  control.stop = {.outcome = wire::Outcome::kCancelled, .delivered = 0};
  control.sequence += 1 + random_.next_word() % 1000;
  std::vector<std::uint8_t> payload(control.size(own_auth_.check_size()));
  wire::write_control_packet(control, own_auth_, payload);
  fill(payload, AttackKind::kForgery, packet);
}

void AttackStack::make_noise(const Recording& recording, Packet& packet) {
  std::vector<std::uint8_t> payload(1 + random_.next_below(600));
  for (std::uint8_t& byte : payload) {
    byte = static_cast<std::uint8_t>(random_.next_word());
  }
  // With the beginning of a real one, where there is one.
  const std::size_t kept = std::min({payload.size() / 2, recording.payload.size() / 2,
                                     static_cast<std::size_t>(random_.next_below(40))});
  std::copy_n(recording.payload.begin(), kept, payload.begin());
  fill(payload, AttackKind::kForgery, packet);
}

}  // namespace spillway::sim
