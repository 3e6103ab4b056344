// SPDX-License-Identifier: Apache-2.0
//
// Credit between two ranks, in one direction: how many data packets may be sent, counted from the
// first, whatever messages they belong to. A new message uses the credit that is left; it gets
// neither a burst nor a wait of its own.
//
//   CreditBalance   at the sender: packets sent, packets allowed
//   CreditBook      at the receiver: what was granted, what is known to be used, what is wanted.
//                   Packet numbers reveal what was sent, lost packets included. A PROBE reveals
//                   lost packets that no later packet followed, as on a path that died.
//
// A packet that a full link trimmed and that must be retransmitted keeps its credit until it
// arrives. So the more packets find no room, the fewer are in flight, and a link elsewhere in the
// network is not overrun for ever.
//
// A peer from which nothing is wanted has standing credit: enough to begin without asking. Both
// ends begin with that much, counted from the same number. Counters never go back, whatever is
// received: a forged or old number can at most be ignored.
//
// Plain values; one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "wire/widen.h"

namespace spillway::transport {

class CreditBalance {
 public:
  CreditBalance(std::uint64_t first_number, std::uint32_t standing)
      : sent_(first_number), settled_(first_number), granted_(first_number + standing) {}

  bool has_credit() const { return sent_ < granted_; }
  std::uint64_t sent() const { return sent_; }
  void on_sent() { ++sent_; }
  // Nothing was sent and nothing heard for a while: all that was sent has arrived or is lost.
  void on_silence() { settled_ = sent_; }
  std::uint64_t settled() const { return settled_; }
  // True if more may be sent than before.
  bool on_granted(std::uint32_t low_bits) {
    const std::uint64_t granted = wire::widen(low_bits, granted_);
    const bool is_more = granted > granted_;
    granted_ = std::max(granted_, granted);
    return is_more;
  }

 private:
  std::uint64_t sent_;
  std::uint64_t settled_;
  std::uint64_t granted_;
};

class CreditBook {
 public:
  CreditBook(std::uint64_t first_number, std::uint32_t standing)
      : granted_(first_number + standing), numbered_(first_number) {}

  // The numbers of packets that arrived show that `count` data packets were sent.
  void on_numbered(std::uint64_t count) {
    numbered_ = std::max(numbered_, std::min(count, granted_));
    // The sum would exceed what was granted: packets presumed lost have arrived after all.
    unseen_ = std::min(unseen_, granted_ - numbered_);
  }
  // Takes a PROBE's CreditBalance::settled(): packets up to it that no number has shown are lost.
  void on_settled(std::uint32_t low_bits) {
    const std::uint64_t settled = std::min(wire::widen(low_bits, sent()), granted_);
    unseen_ = std::max(sent(), settled) - numbered_;
  }
  std::uint64_t sent() const { return numbered_ + unseen_; }

  // Adds or subtracts packets of messages under way that have not arrived.
  void want(std::uint32_t packets) { wanted_ += packets; }
  void want_less(std::uint32_t packets) {
    SPILLWAY_CHECK(packets <= wanted_);
    wanted_ -= packets;
    spoilt_ = std::min(spoilt_, wanted_);
  }
  std::uint32_t wanted() const { return wanted_; }

  std::uint64_t granted() const { return granted_; }
  std::uint64_t unused() const { return granted_ - sent(); }
  // True if all that is wanted may be sent.
  bool covers_all() const { return unused() >= wanted_; }

  // Packets to grant next: a quantum, or what is needed if that is less. None while a quantum is
  // unused and less than another whole one could be added: a receiver ahead of its sender must not
  // grant credit packet by packet.
  std::uint32_t grantable(std::uint32_t standing, std::uint32_t window,
                          std::uint32_t quantum) const {
    const std::uint32_t whole = std::max(std::min(wanted_, window), standing);
    const std::uint32_t kept = std::min(spoilt_, whole - std::min(whole, quantum));
    const std::uint64_t limit = sent() + whole - kept;
    if (limit <= granted_) {
      return 0;
    }
    const auto next =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(quantum, limit - granted_));
    return next == quantum || unused() < std::min<std::uint64_t>(quantum, wanted_) ||
                   unused() * 2 < standing
               ? next
               : 0;
  }
  void grant(std::uint32_t packets) { granted_ += packets; }

  // on_spoilt(): a packet came trimmed and must be retransmitted. on_repaired(): a retransmission
  // came.
  void on_spoilt() { ++spoilt_; }
  void on_repaired() { spoilt_ -= spoilt_ > 0 ? 1 : 0; }

 private:
  std::uint64_t granted_;
  std::uint64_t numbered_;    // numbered_ + unseen_ never exceeds granted_
  std::uint64_t unseen_ = 0;  // lost, with no later packet on their paths
  std::uint32_t wanted_ = 0;
  std::uint32_t spoilt_ = 0;  // not yet repaired; 0 again once nothing is wanted
};

}  // namespace spillway::transport
