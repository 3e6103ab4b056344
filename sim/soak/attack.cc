// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/attack.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "wire/control_packet.h"
#include "wire/data_packet.h"

namespace spillway::sim {

// ------------------------------------------------------------------ forgeries

namespace {

bool is_data(base::ByteView packet) {
  return spillway_is_data_type(spillway_type_of(packet[0]));
}

wire::DataHeader data_header_of(base::ByteView packet) {
  wire::DataHeader header;
  SPILLWAY_CHECK(wire::read_data_header(packet, header) == wire::PacketFault::kNone);
  return header;
}

// The planes of a packet as sent, without the checks between them.
PacketBytes planes_of(base::ByteView packet, const wire::DataHeader& header) {
  const auto head =
      packet.begin() + static_cast<std::ptrdiff_t>(header.head_end()) - header.head_bytes;
  PacketBytes planes(head, head + header.head_bytes);
  for (std::size_t at = header.head_end(); at < packet.size();) {
    const std::size_t segment =
        std::min(header.segment_bytes(), packet.size() - at - SPILLWAY_CHECK_SIZE);
    planes.insert(planes.end(), packet.begin() + static_cast<std::ptrdiff_t>(at),
                  packet.begin() + static_cast<std::ptrdiff_t>(at + segment));
    at += segment + SPILLWAY_CHECK_SIZE;
  }
  return planes;
}

PacketBytes resealed_data(base::ByteView packet, const wire::PacketAuth& auth, std::uint64_t near) {
  wire::DataHeader header = data_header_of(packet);
  header.stamp.number = wire::widen_counter(header.stamp.number, near);
  if (header.encrypted) {
    header.scale = header.rotations == 0 ? 0.0F : 1.0F;  // encrypted, so not known
  }
  PacketBytes out(header.packet_size());
  wire::write_data_packet(header, planes_of(packet, header), auth, out);
  return out;
}

PacketBytes resealed_control(base::ByteView packet, const wire::PacketAuth& auth,
                             std::uint64_t near) {
  wire::ControlPacket control;
  SPILLWAY_CHECK(wire::read_control_header(packet, control) == wire::PacketFault::kNone);
  control.sequence = wire::widen_counter(control.sequence, near);
  PacketBytes out(packet.begin(), packet.end());
  const std::size_t covered = out.size() - SPILLWAY_CHECK_SIZE;
  const wire::Check check = auth.check(control.name(), base::ByteView(out).first(covered));
  std::memcpy(out.data() + covered, check.bytes.data(), SPILLWAY_CHECK_SIZE);
  return out;
}

}  // namespace

PacketEnds ends_of(base::ByteView packet) {
  return {
      base::load_le<std::uint16_t>(packet.data() + offsetof(spillway_packet_header, source)),
      base::load_le<std::uint16_t>(packet.data() + offsetof(spillway_packet_header, destination))};
}

void set_ends(PacketBytes& packet, const PacketEnds& ends) {
  base::store_le(packet.data() + offsetof(spillway_packet_header, source), ends.source);
  base::store_le(packet.data() + offsetof(spillway_packet_header, destination), ends.destination);
}

void set_epoch(PacketBytes& packet, std::uint64_t epoch) {
  base::store_le(packet.data() + offsetof(spillway_packet_header, epoch),
                 static_cast<std::uint8_t>(epoch));
}

void push_number(PacketBytes& packet, std::uint32_t by) {
  spillway_packet_header header;
  std::memcpy(&header, packet.data(), sizeof(header));
  header.number = wire::low_counter(header.number + by);
  std::memcpy(packet.data(), &header, sizeof(header));
}

std::size_t trusted_end(base::ByteView packet) {
  return is_data(packet) ? data_header_of(packet).head_end() : packet.size();
}

PacketBytes resealed(base::ByteView packet, const wire::PacketAuth& auth, std::uint64_t near) {
  return is_data(packet) ? resealed_data(packet, auth, near) : resealed_control(packet, auth, near);
}

// ------------------------------------------------------------------ the attacker

namespace {

// The upper half of an honest label is the job's number, which is never this large.
constexpr std::uint32_t kLabel = 0xA77AC000;
constexpr std::uint32_t kLabelMask = 0xFFFFF000;
constexpr std::uint32_t kForgedBit = 0x800;

constexpr std::uint32_t kAttackKeys = 1;
// Epochs this far apart have the same low bits in packets.
constexpr std::uint64_t kEpochRound = std::uint64_t{1} << 8;

wire::PacketAuth wrong_auth(std::uint64_t seed) {
  std::array<std::uint8_t, wire::PacketAuth::kMinSecretBytes> secret{};
  base::store_le(secret.data(), ~seed);
  secret.back() = 1;
  return wire::PacketAuth::of_secret(secret).value();
}

// A control packet with the source, destination and message of a recorded packet.
wire::ControlPacket control_like(const Packet& packet, base::ByteView payload) {
  wire::ControlPacket control;
  if (packet.kind == PacketKind::kSpillwayControl) {
    static_cast<void>(wire::read_control_header(payload, control));
    return control;
  }
  control.job = packet.data.job;
  control.epoch = packet.data.epoch;
  control.source = packet.data.message.source;
  control.destination = packet.data.destination;
  control.message = packet.data.message;
  return control;
}

}  // namespace

std::uint32_t label_of(const AttackLabel& label) {
  return kLabel | (label.is_forgery ? kForgedBit : 0) | static_cast<std::uint32_t>(label.attack);
}

std::optional<AttackLabel> attack_of(const Packet& packet) {
  if ((packet.label & kLabelMask) != kLabel) {
    return std::nullopt;
  }
  return AttackLabel{.attack = static_cast<Attack>(packet.label & ~(kLabelMask | kForgedBit)),
                     .is_forgery = (packet.label & kForgedBit) != 0};
}

AttackStack::AttackStack(const AttackPlan& plan, std::uint32_t hosts, PacketPool& pool)
    : plan_(plan),
      hosts_(hosts),
      pool_(pool),
      random_(base::derive_key(plan.seed, {kAttackKeys, 0, 0, 0})),
      own_auth_(wrong_auth(plan.seed)),
      left_(plan.packets) {}

// Keeps a uniform random sample of all packets heard so far.
void AttackStack::overhear(const SpillwayStack& stack, const Packet& packet,
                           base::ByteView payload) {
  ++heard_;
  const std::uint64_t place =
      recordings_.size() < kRecordings ? recordings_.size() : random_.next_below(heard_);
  if (place >= kRecordings) {
    return;
  }
  recordings_.resize(std::max<std::size_t>(recordings_.size(), place + 1));
  Recording& recording = recordings_[place];
  recording = {.packet = packet,
               .payload = {payload.begin(), payload.end()},
               .session = stack.config().session,
               .epoch = stack.config().endpoint.epoch,
               .first_number = stack.config().endpoint.first_number};
  recording.packet.from = stack.host();
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
  auto attack = static_cast<Attack>(random_.next_below(kAttacks));
  std::optional<Forged> forged = make(attack, recording);
  if (!forged) {
    attack = Attack::kReplay;
    forged = replay(recording);
  }
  send(recording, {.attack = attack, .is_forgery = forged->is_forgery}, *forged, packet);
  return true;
}

// Empty if the recording does not suit the attack: there is no other victim, or no bytes to change.
std::optional<AttackStack::Forged> AttackStack::make(Attack attack, const Recording& recording) {
  switch (attack) {
    case Attack::kReplay:
      return replay(recording);
    case Attack::kNoise:
      return noise(recording);
    case Attack::kRedirect:
      return redirect(recording);
    case Attack::kLeave:
    case Attack::kEnd:
      return forge_control(recording, attack);
    default:
      break;
  }
  if (recording.payload.empty()) {
    return std::nullopt;
  }
  switch (attack) {
    case Attack::kCut:
      return cut(recording);
    case Attack::kFlip:
      return flip(recording);
    case Attack::kReaddress:
      return readdress(recording);
    case Attack::kReflect:
      return reflect(recording);
    case Attack::kPush:
      return push(recording);
    case Attack::kOtherRun:
      return of_other_run(recording);
    default:
      return of_other_epoch(recording);
  }
}

void AttackStack::send(const Recording& recording, const AttackLabel& label, const Forged& forged,
                       Packet& packet) {
  packet.to = forged.victim;
  packet.kind = recording.packet.kind;
  packet.stack = recording.packet.stack;
  packet.dscp = recording.packet.dscp;
  packet.ecn = recording.packet.ecn;
  packet.importance = recording.packet.importance;
  packet.priority = recording.packet.priority;
  packet.label = label_of(label);
  packet.data = recording.packet.data;
  packet.bytes = recording.packet.bytes;
  if (!forged.payload.empty()) {
    const auto size = static_cast<std::uint32_t>(forged.payload.size());
    std::ranges::copy(forged.payload, pool_.attach_payload(packet, size).begin());
    packet.bytes = kFrameHeaderBytes + size;
  }
}

// ------------------------------------------------------------------ victims

// The recorded receiver, or another host if that is the attacker's own: no host sends to itself.
HostId AttackStack::victim_of(const Recording& recording) const {
  const HostId victim = recording.packet.to;
  return victim == plan_.host ? (victim + 1) % hosts_ : victim;
}

// A random host other than the recorded receiver and the attacker's own; empty if there is none.
std::optional<HostId> AttackStack::other_victim(const Recording& recording) {
  const auto first = static_cast<HostId>(random_.next_below(hosts_));
  for (HostId i = 0; i < hosts_; ++i) {
    const HostId host = (first + i) % hosts_;
    if (host != plan_.host && host != recording.packet.to) {
      return host;
    }
  }
  return std::nullopt;
}

// ------------------------------------------------------------------ recorded packets

AttackStack::Forged AttackStack::replay(const Recording& recording) {
  const HostId victim = victim_of(recording);
  return {
      .victim = victim, .is_forgery = victim != recording.packet.to, .payload = recording.payload};
}

AttackStack::Forged AttackStack::cut(const Recording& recording) {
  Forged forged = replay(recording);
  forged.payload.resize(1 + random_.next_below(recording.payload.size() - 1));
  forged.is_forgery |= forged.payload.size() < trusted_end(recording.payload);
  return forged;
}

// Flips two bits: damage to a single bit on the way must not restore the packet. A flip in the tail
// is no forgery: the data packet is valid up to there.
AttackStack::Forged AttackStack::flip(const Recording& recording) {
  Forged forged = replay(recording);
  const std::uint64_t trusted = trusted_end(recording.payload) * 8;
  const std::uint64_t tail = recording.payload.size() * 8 - trusted;
  const bool in_tail = tail > 0 && random_.next_below(2) == 0;
  const std::uint64_t begin = in_tail ? trusted : 0;
  const std::uint64_t bits = in_tail ? tail : trusted;
  const std::uint64_t first = random_.next_below(bits);
  const std::uint64_t second = (first + 1 + random_.next_below(bits - 1)) % bits;
  for (const std::uint64_t bit : {begin + first, begin + second}) {
    forged.payload[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
  }
  forged.is_forgery |= !in_tail;
  return forged;
}

std::optional<AttackStack::Forged> AttackStack::redirect(const Recording& recording) {
  const std::optional<HostId> victim = other_victim(recording);
  if (!victim) {
    return std::nullopt;
  }
  return Forged{.victim = *victim, .payload = recording.payload};
}

std::optional<AttackStack::Forged> AttackStack::readdress(const Recording& recording) {
  Forged forged{.victim = victim_of(recording), .payload = recording.payload};
  PacketEnds ends = ends_of(recording.payload);
  if (random_.next_below(2) == 0) {
    const std::optional<HostId> victim = other_victim(recording);
    if (!victim) {
      return std::nullopt;
    }
    forged.victim = *victim;
    ends.destination = static_cast<std::uint16_t>(*victim);
  } else {
    ends.source =
        static_cast<std::uint16_t>((ends.source + 1 + random_.next_below(hosts_ - 1)) % hosts_);
  }
  set_ends(forged.payload, ends);
  return forged;
}

std::optional<AttackStack::Forged> AttackStack::reflect(const Recording& recording) {
  if (recording.packet.from == plan_.host) {
    return std::nullopt;
  }
  Forged forged{.victim = recording.packet.from, .payload = recording.payload};
  const PacketEnds ends = ends_of(recording.payload);
  set_ends(forged.payload, {.source = ends.destination, .destination = ends.source});
  return forged;
}

// Changes more than one bit, as flips do.
AttackStack::Forged AttackStack::push(const Recording& recording) {
  Forged forged{.victim = victim_of(recording), .payload = recording.payload};
  push_number(forged.payload, 0x0303U << random_.next_below(22));
  return forged;
}

// ------------------------------------------------------------------ foreign packets

AttackStack::Forged AttackStack::of_other_run(const Recording& recording) {
  const PacketEnds ends = ends_of(recording.payload);
  wire::RunKey key;
  for (std::uint8_t& byte : key.bytes) {
    byte = static_cast<std::uint8_t>(random_.next_word());
  }
  const wire::PacketAuth auth =
      wire::PacketAuth::make(key, {recording.epoch, ends.source, ends.destination},
                             recording.session.protection)
          .value();
  return {.victim = victim_of(recording),
          .payload = resealed(recording.payload, auth, recording.first_number)};
}

// Half of these epochs look the same in packets, which carry only the low bits.
AttackStack::Forged AttackStack::of_other_epoch(const Recording& recording) {
  const PacketEnds ends = ends_of(recording.payload);
  const std::uint64_t epoch =
      recording.epoch + (random_.next_below(2) == 0 ? kEpochRound : 1 + random_.next_below(1000));
  const wire::PacketAuth auth =
      wire::PacketAuth::make(recording.session.key, {epoch, ends.source, ends.destination},
                             recording.session.protection)
          .value();
  PacketBytes payload = recording.payload;
  set_epoch(payload, epoch);
  return {.victim = victim_of(recording),
          .payload = resealed(payload, auth, recording.first_number)};
}

AttackStack::Forged AttackStack::forge_control(const Recording& recording, Attack attack) {
  wire::ControlPacket control = control_like(recording.packet, recording.payload);
  if (attack == Attack::kLeave) {
    control.type = wire::ControlType::kLeave;
    control.leave = {.culprit = control.source, .cause = wire::FailureCause::kAborted};
    control.message = {};
  } else {
    control.type = random_.next_below(2) == 0 ? wire::ControlType::kStop : wire::ControlType::kWait;
    control.stop = {.outcome = wire::Outcome::kCancelled, .delivered = 0};
  }
  control.sequence += 1 + random_.next_word() % 1000;
  Forged forged{.victim = victim_of(recording), .payload = PacketBytes(control.size())};
  wire::write_control_packet(control, own_auth_, forged.payload);
  return forged;
}

AttackStack::Forged AttackStack::noise(const Recording& recording) {
  const std::optional<HostId> other = other_victim(recording);
  Forged forged{.victim = other && random_.next_below(2) == 0 ? *other : victim_of(recording),
                .payload = PacketBytes(1 + random_.next_below(600))};
  for (std::uint8_t& byte : forged.payload) {
    byte = static_cast<std::uint8_t>(random_.next_word());
  }
  // Starts with the first bytes of the recorded packet, if it has any.
  const std::size_t kept = std::min({forged.payload.size() / 2, recording.payload.size() / 2,
                                     static_cast<std::size_t>(random_.next_below(40))});
  std::copy_n(recording.payload.begin(), kept, forged.payload.begin());
  return forged;
}

}  // namespace spillway::sim
