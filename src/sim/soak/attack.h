// SPDX-License-Identifier: Apache-2.0
//
// The attacker of a soak world: hears every packet of every job, keeps some, and sends, from a host
// of his own, what he likes to whom he likes: recorded packets as they were, or with bits flipped,
// control packets made up and sealed with a key that is not the job's, noise.
//
// Every packet he sends carries a label that says what it is, which only observers look at. A
// forgery must be refused by whoever gets it; a replay is a genuine packet that comes once more.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/random.h"
#include "sim/host_stack.h"
#include "sim/soak/world.h"
#include "sim/stacks/spillway_stack.h"

namespace spillway::sim {

enum class AttackKind : std::uint8_t { kReplay, kForgery };

// What the label of a packet says about it; nothing for packets of honest hosts.
std::optional<AttackKind> attack_of(const Packet& packet);

class AttackStack final : public HostStack {
 public:
  // The pool must outlive the stack.
  AttackStack(const AttackPlan& plan, std::uint32_t hosts, PacketPool& pool);

  // Hears a packet on its way from a stack.
  void overhear(const Packet& packet, base::ByteView payload, const wire::PacketAuth& auth);

  void expect_flow(const Flow&, base::Instant) override {}
  void start_flow(const Flow&, base::Instant) override {}
  void on_packet(Packet&, base::Instant) override {}
  void on_timeout(base::Instant now) override { is_ready_ = is_ready_ || now >= due_; }
  base::Instant next_timeout() const override;
  bool poll_transmit(base::Instant now, Packet& packet) override;

 private:
  struct Recording {
    Packet packet;
    std::vector<std::uint8_t> payload;
    const wire::PacketAuth* auth = nullptr;  // to make up packets that look right
  };
  static constexpr std::size_t kRecordings = 64;

  HostId victim_of(const Recording& recording);
  void replay(const Recording& recording, Packet& packet);
  void flip(const Recording& recording, Packet& packet);
  void make_up(const Recording& recording, Packet& packet);
  void make_noise(const Recording& recording, Packet& packet);
  void fill(const std::vector<std::uint8_t>& payload, AttackKind kind, Packet& packet);

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
