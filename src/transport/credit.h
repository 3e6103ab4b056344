// SPDX-License-Identifier: Apache-2.0
//
// Credit between two ranks, in one direction: how many data packets may be sent, counted from the
// first, whatever messages they belong to. A message that follows another goes on with what is
// there; none has a burst or a wait of its own.
//
//   CreditBalance   at the sender: what was sent, what may be
//   CreditBook      at the receiver: what was granted, what of it is known to be used, what is
//                   wanted. Numbers of packets tell what was sent, lost ones included; a PROBE
//                   tells of those behind which nothing came, as on a path that died.
//
// A packet that a full link cut, and that has to come again, keeps its credit until it does: less
// is on its way the more found no room, and a link that is not this host's own is not overrun for
// ever.
//
// A peer from which nothing is wanted has standing credit: enough to begin without asking. Both
// ends begin with that much, counted from the same number. Counters never run back, whatever is
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
  // For a while nothing was sent and nothing heard: all that was sent has come or is lost.
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

  // Data packets were sent up to this many, as the numbers of those that came show.
  void on_numbered(std::uint64_t count) {
    numbered_ = std::max(numbered_, std::min(count, granted_));
    // More than was granted: some that were given up have shown themselves after all.
    unseen_ = std::min(unseen_, granted_ - numbered_);
  }
  // A PROBE's CreditBalance::settled(): those that no number has shown are lost.
  void on_settled(std::uint32_t low_bits) {
    const std::uint64_t settled = std::min(wire::widen(low_bits, sent()), granted_);
    unseen_ = std::max(sent(), settled) - numbered_;
  }
  std::uint64_t sent() const { return numbered_ + unseen_; }

  // Packets of messages under way that have not arrived.
  void want(std::uint32_t packets) { wanted_ += packets; }
  void want_less(std::uint32_t packets) {
    SPILLWAY_CHECK(packets <= wanted_);
    wanted_ -= packets;
    spoilt_ = std::min(spoilt_, wanted_);
  }
  std::uint32_t wanted() const { return wanted_; }

  std::uint64_t granted() const { return granted_; }
  std::uint64_t unused() const { return granted_ - sent(); }
  // Whatever is wanted may be sent.
  bool covers_all() const { return unused() >= wanted_; }

  // How many packets to grant next: a quantum, or what is needed if that is less. None while there
  // is a quantum to use and not another whole one to add, so that credit does not come packet by
  // packet from a receiver that is ahead of its sender.
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

  // A packet came cut, and is to be sent again; one that was sent again came.
  void on_spoilt() { ++spoilt_; }
  void on_repaired() { spoilt_ -= spoilt_ > 0 ? 1 : 0; }

 private:
  std::uint64_t granted_;
  std::uint64_t numbered_;    // never more, together with those unseen, than was granted
  std::uint64_t unseen_ = 0;  // lost, and nothing came behind them on their paths
  std::uint32_t wanted_ = 0;
  std::uint32_t spoilt_ = 0;  // since everything that was wanted had come
};

}  // namespace spillway::transport
