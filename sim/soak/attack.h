// SPDX-License-Identifier: Apache-2.0
//
// The attacker of a soak world. It hears every packet of every job, records some, and sends from
// its own host: recorded packets as they were, cut, changed, redirected, or as of another run or
// epoch; made-up packets sealed with its own key; and noise. Jobs without keys detect
// accidents only. Against those it sends only what an accident could produce.
//
// Each packet carries a label that names the attack; only observers read it. A forgery must be
// refused and counted once by its receiver. Any other packet is a duplicate of a genuine one, or of
// its beginning.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "sim/host.h"
#include "sim/soak/world.h"
#include "sim/stacks/spillway_stack.h"
#include "wire/control_packet.h"
#include "wire/packet_auth.h"

namespace spillway::sim {

// Forgeries that an attacker makes of recorded packets. A forgery is as good as possible without
// the keys: its header looks genuine, so that the packet reaches the check that must refuse it.
//
// Pure functions on whole packets as sent. Packets carry only the low bits of their numbers.

using PacketBytes = std::vector<std::uint8_t>;

enum class Attack : std::uint8_t {
  kReplay,      // a recorded packet
  kCut,         // a prefix of one
  kFlip,        // one with bits flipped
  kNoise,       // random bytes, perhaps after the first bytes of one
  kRedirect,    // one sent to a rank that it is not for
  kReaddress,   // one that claims another destination or source
  kReflect,     // one sent back to its sender, as if it were the answer
  kPush,        // one with a number far ahead
  kOtherRun,    // one of another run of the job
  kOtherEpoch,  // one of another epoch of this run
  kLeave,       // made up: a rank's application has aborted
  kEnd,         // made up: a message is over, or has not begun
};
inline constexpr std::size_t kAttacks = 12;

// The source and destination in a packet's header.
struct PacketEnds {
  std::uint16_t source = 0;
  std::uint16_t destination = 0;
};
PacketEnds ends_of(base::ByteView packet);
void set_ends(PacketBytes& packet, const PacketEnds& ends);
void set_epoch(PacketBytes& packet, std::uint64_t epoch);
// Adds to a data packet's number, or a control packet's sequence.
void push_number(PacketBytes& packet, std::uint32_t by);

// The length of the prefix that must arrive unchanged for any of the packet to be trusted.
std::size_t trusted_end(base::ByteView packet);

// The same packet with the checks that these keys give; its full number is the one nearest to
// `near`.
PacketBytes resealed(base::ByteView packet, const wire::PacketAuth& auth, std::uint64_t near);

struct AttackLabel {
  Attack attack = Attack::kReplay;
  bool is_forgery = false;
};

std::uint32_t label_of(const AttackLabel& label);
// The attack that a packet's label names; empty for packets of honest hosts.
std::optional<AttackLabel> attack_of(const Packet& packet);

class AttackStack final : public HostStack {
 public:
  // The pool must outlive the stack.
  AttackStack(const AttackPlan& plan, std::uint32_t hosts, PacketPool& pool);

  // Hears a packet that a stack sends.
  void overhear(const SpillwayStack& stack, const Packet& packet, base::ByteView payload);

  void expect_flow(const Flow&, base::Instant) override {}
  void start_flow(const Flow&, base::Instant) override {}
  void on_packet(Packet&, base::Instant) override {}
  void on_timeout(base::Instant now) override { is_ready_ = is_ready_ || now >= due_; }
  base::Instant next_timeout() const override;
  bool poll_transmit(base::Instant now, Packet& packet) override;

 private:
  struct Recording {
    Packet packet;
    PacketBytes payload;  // empty for a size-only packet
    // The job's session. The attacker does not use its key; it serves to make packets of other
    // epochs.
    transport::SessionConfig session;
    std::uint64_t epoch = 0;
    std::uint64_t first_number = 0;  // packet numbers are near it
  };
  // A packet to send, its victim, and whether the victim must refuse all of it.
  struct Forged {
    HostId victim = 0;
    bool is_forgery = true;
    PacketBytes payload{};
  };
  static constexpr std::size_t kRecordings = 64;

  std::optional<Forged> make(Attack attack, const Recording& recording);
  Forged replay(const Recording& recording);
  Forged cut(const Recording& recording);
  Forged flip(const Recording& recording);
  Forged noise(const Recording& recording);
  std::optional<Forged> redirect(const Recording& recording);
  std::optional<Forged> readdress(const Recording& recording);
  std::optional<Forged> reflect(const Recording& recording);
  Forged push(const Recording& recording);
  Forged of_other_run(const Recording& recording);
  Forged of_other_epoch(const Recording& recording);
  Forged forge_control(const Recording& recording, Attack attack);

  HostId victim_of(const Recording& recording) const;
  std::optional<HostId> other_victim(const Recording& recording);
  void send(const Recording& recording, const AttackLabel& label, const Forged& forged,
            Packet& packet);

  AttackPlan plan_;
  std::uint32_t hosts_;
  PacketPool& pool_;
  base::RandomSequence random_;
  wire::PacketAuth own_auth_;
  std::vector<Recording> recordings_;
  std::uint64_t heard_ = 0;
  std::uint32_t left_;
  base::Instant due_ = transport::kNever;  // unset until a first poll
  bool is_ready_ = false;                  // to send, once the card is free
};

}  // namespace spillway::sim
