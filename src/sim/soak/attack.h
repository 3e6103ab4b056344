// SPDX-License-Identifier: Apache-2.0
//
// The attacker of a soak world: hears every packet of every job, keeps some, and sends, from a host
// of his own, what he likes to whom he likes: recorded packets as they were, cut, changed, to other
// ranks, as of another run or epoch; packets made up and sealed with a key of his own; noise
// (forgery.h). Against jobs without keys, which are promised nothing but to notice accidents, he
// keeps to what might be one.
//
// Every packet he sends carries a label that says what it is, which only observers look at. A
// forgery must be refused, and counted once, by whoever gets it; what is none is a genuine packet,
// or the beginning of one, that comes once more.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/random.h"
#include "sim/host_stack.h"
#include "sim/soak/forgery.h"
#include "sim/soak/world.h"
#include "sim/stacks/spillway_stack.h"

namespace spillway::sim {

struct AttackLabel {
  Attack attack = Attack::kReplay;
  bool is_forgery = false;
};

std::uint32_t label_of(const AttackLabel& label);
// What the label of a packet says about it; nothing for packets of honest hosts.
std::optional<AttackLabel> attack_of(const Packet& packet);

class AttackStack final : public HostStack {
 public:
  // The pool must outlive the stack.
  AttackStack(const AttackPlan& plan, std::uint32_t hosts, PacketPool& pool);

  // Hears a packet on its way from a stack.
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
    PacketBytes payload;  // none of a packet that is only a size
    // Of its job. He does not know the key: it stands for recordings of other epochs.
    transport::SessionConfig session;
    std::uint64_t epoch = 0;
    std::uint64_t first_number = 0;  // whole numbers are near
  };
  // What he sends: to whom, and whether nothing of it may be believed there.
  struct Forged {
    HostId victim = 0;
    bool is_forgery = true;
    PacketBytes payload{};
  };
  static constexpr std::size_t kRecordings = 64;

  Attack choose(const Recording& recording);
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
  Forged make_up(const Recording& recording, Attack attack);

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
  base::Instant due_ = transport::kNever;  // not before something was heard
  bool is_ready_ = false;                  // waits for the card
};

}  // namespace spillway::sim
