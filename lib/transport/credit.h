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
// A peer from which nothing is wanted has standing credit: enough to begin without asking. Both
// ends begin with that much, counted from the same number. Counters never go back, whatever is
// received: a forged or old number can at most be ignored.
//
// Plain values; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "wire/data_packet.h"
#include "wire/packet.h"

namespace spillway::transport {

class CreditBalance {
 public:
  CreditBalance(std::uint64_t first_number, std::uint32_t standing)
      : sent_(first_number), settled_(first_number), granted_(first_number + standing) {}

  bool has_credit() const { return sent_ < granted_; }
  std::uint64_t unused() const { return granted_ - sent_; }
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
  }
  std::uint32_t wanted() const { return wanted_; }

  std::uint64_t granted() const { return granted_; }
  std::uint64_t unused() const { return granted_ - sent(); }
  // True if all that is wanted may be sent.
  bool covers_all() const { return unused() >= wanted_; }

  // Packets to grant next: a quantum, less of a small window, or the rest of what is wanted.
  // Otherwise none: a window that opens packet by packet must not be granted packet by packet.
  std::uint32_t grantable(std::uint32_t standing, std::uint32_t window,
                          std::uint32_t quantum) const {
    const std::uint32_t whole = std::max(std::min(wanted_, window), standing);
    const std::uint64_t limit = sent() + whole;
    if (limit <= granted_) {
      return 0;
    }
    const auto next =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(quantum, limit - granted_));
    const bool is_the_rest = wanted_ <= window && unused() < wanted_;
    return is_the_rest || next >= std::min(quantum, whole / 2) ? next : 0;
  }
  void grant(std::uint32_t packets) { granted_ += packets; }

 private:
  std::uint64_t granted_;
  std::uint64_t numbered_;    // numbered_ + unseen_ never exceeds granted_
  std::uint64_t unseen_ = 0;  // lost, with no later packet on their paths
  std::uint32_t wanted_ = 0;
};

// Decides when each peer may send more packets: the receiver's cure for incast. The receiver knows
// who sends to it and how much, so it hands out its link's time in quanta of packets, at the rate
// of the link: the most urgent peer first, equals in equal shares, however much each takes at a
// time. So peers that send the same amounts end together, and work that waits for all of them does
// not wait for one that fell behind.
//
// Credit takes a while to come back as packets, and far longer where ranks share processors. So it
// is granted ahead of the rate, up to a certain depth, like a token bucket that fills at the rate.
// The depth grows when a sender runs out of credit, and shrinks when packets are marked.
//
// Over-send: on a trimming fabric credit may flow faster than the link, so that the bottleneck is
// always full and the excess is trimmed. The pace is steered to keep the trimmed share at its
// target: every kSampledPackets the pace moves by how far off the share was.
//
// Pure: slots in, slots out; the caller keeps the credit books. One thread.

class CreditPacer {
 public:
  // Depths, as transmission time on the link.
  struct Depths {
    base::Duration least{};
    base::Duration most{};
  };
  CreditPacer(base::BitRate rate, std::optional<double> trimmed_target, const Depths& depths);

  // Adds a peer that wants credit; it must not be in line already.
  void enqueue(std::uint32_t slot, std::uint8_t priority);
  // A peer in line has become more urgent.
  void raise(std::uint32_t slot, std::uint8_t from, std::uint8_t to);
  bool empty() const { return waiting_mask_ == 0; }
  base::Instant next_grant() const { return next_grant_; }

  // Removes and returns the peer whose turn it is; call only if not empty and next_grant() has
  // come.
  std::uint32_t take_turn();
  // The peer that had the turn was granted packets that take so many bytes on the wire.
  void granted(base::Bytes bytes, base::Instant now);

  void on_arrival(bool trimmed);
  // A peer has used all its credit and has more to send.
  void on_starved() { deepen(kDeeper); }
  void on_marked() { deepen(base::Duration() - depth_ / kMarkedShare); }
  double pace() const { return pace_; }
  base::Duration depth() const { return depth_; }

 private:
  static constexpr std::uint32_t kSampledPackets = 128;
  static constexpr base::Duration kDeeper = base::microseconds(20);  // each time
  static constexpr int kMarkedShare = 512;  // the depth shrinks by one part in so many

  // Granted credit stays granted: only the next grant moves.
  void deepen(base::Duration by) {
    const base::Duration depth = std::clamp(depth_ + by, depths_.least, depths_.most);
    next_grant_ = next_grant_ - (depth - depth_);
    depth_ = depth;
  }

  base::BitRate rate_;
  std::optional<double> trimmed_target_;
  double pace_ = 1.0;
  Depths depths_;
  base::Duration depth_;
  base::Instant next_grant_;
  // Fair queueing by start times: a peer's turn comes when it has been granted no more than others
  // since it came. `begin` counts bytes granted to each of the peers that wait.
  struct Turn {
    std::uint64_t begin = 0;
    std::uint64_t order = 0;  // among equals
    std::uint32_t slot = 0;
    friend auto operator<=>(const Turn&, const Turn&) = default;
  };
  void enqueue(Turn turn, std::uint8_t priority);

  std::array<std::set<Turn>, SPILLWAY_PRIORITIES> waiting_;
  std::uint32_t waiting_mask_ = 0;
  std::vector<std::uint64_t> granted_until_;  // by slot: where its next turn begins
  Turn latest_;                               // the turn taken last
  std::uint64_t turns_ = 0;
  std::uint32_t sampled_packets_ = 0;
  std::uint32_t sampled_trimmed_ = 0;
};

}  // namespace spillway::transport
