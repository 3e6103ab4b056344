// SPDX-License-Identifier: Apache-2.0
//
// A message expected from a peer: its state, what arrived packet by packet, and what its sender
// must still be told. A plain record with small steps; the Receiver decides when to take them. One
// thread.
//
// It is over when everything came; when the budget is met, every important packet is there and
// stragglers had their chance (lingering); or at its deadline. An ended message stays in the table
// for a while without its ledger, so that a sender that missed the STOP gets another.
//
// Order and duplicates make no difference (PacketLedger): a packet counts once, and a longer copy
// replaces a shorter one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/tracked.h"
#include "transport/message.h"
#include "transport/stall.h"

namespace spillway::transport {

struct Peer;

// Counts the planes of each packet that came, the packets delivered, and the important ones of
// these.
class PacketLedger {
 public:
  enum class Entry : std::uint8_t { kNew, kImproved, kDuplicate, kTooFew };

  PacketLedger() = default;
  PacketLedger(std::uint32_t packets, std::uint8_t planes_sent, std::uint8_t min_planes)
      : planes_sent_(planes_sent), min_planes_(min_planes), planes_(packets, 0) {}

  // `packet` < packets(); `planes` > 0.
  Entry record(std::uint32_t packet, std::uint8_t planes, bool is_important);

  std::uint32_t packets() const { return static_cast<std::uint32_t>(planes_.size()); }
  std::uint32_t delivered() const { return delivered_; }
  std::uint32_t missing() const { return packets() - delivered_; }
  std::uint32_t whole() const { return whole_; }
  std::uint32_t important_delivered() const { return important_; }
  bool is_whole(std::uint32_t packet) const { return planes_[packet] >= planes_sent_; }
  bool is_delivered(std::uint32_t packet) const { return planes_[packet] >= min_planes_; }

  // Fills `range` with the first stretch at or after `from` that has a packet missing. False: none.
  bool next_missing_range(std::uint32_t from, wire::BitmapRange& range) const;

  std::vector<std::uint8_t> take_planes() { return std::move(planes_); }

 private:
  std::uint8_t planes_sent_ = 0;
  std::uint8_t min_planes_ = 1;
  std::uint32_t delivered_ = 0;
  std::uint32_t whole_ = 0;
  std::uint32_t important_ = 0;
  std::vector<std::uint8_t> planes_;
};

// The set of things that the sender of a message must still be told. They are written as control
// packets when the message's turn in the control queue comes.
class Owed {
 public:
  enum Item : std::uint8_t {
    kStop = 1 << 0,      // the message is over
    kCredit = 1 << 1,    // grants, and reports of paths
    kQuestion = 1 << 2,  // sent with the credit: asks for a sign of life
    kBitmap = 1 << 3,    // missing packets, range by range
  };

  bool empty() const { return items_ == 0; }
  bool has(Item item) const { return (items_ & item) != 0; }
  // A question is sent with a credit, so it adds one.
  void add(Item item) { items_ |= item == kQuestion ? kQuestion | kCredit : item; }
  void remove(Item item) { items_ &= static_cast<std::uint8_t>(~item); }
  // Removes the item; true if it was owed.
  bool take(Item item) {
    const bool was_owed = has(item);
    remove(item);
    return was_owed;
  }

 private:
  std::uint8_t items_ = 0;
};

// Where an incoming message stands, and what may follow:
//
//   kFree ──► kExpected ──► kArriving ──► kLingering ──► kEnded ──► kFree
//             kExpected ───────────────────────────────► kEnded     nothing came in time
//                           kArriving ─────────────────► kEnded     all of it came, or no more will
//
//   kFree       a free slot of the table
//   kExpected   its owner waits for it; nothing of it came
//   kArriving   a packet or a probe of it came
//   kLingering  enough came; stragglers have until linger_due
//   kEnded      its owner was told; its sender is told whenever it asks
enum class IncomingState : std::uint8_t { kFree, kExpected, kArriving, kLingering, kEnded };
inline constexpr unsigned kIncomingStates = 5;

constexpr bool may_follow(IncomingState from, IncomingState to) {
  switch (from) {
    case IncomingState::kFree:
      return to == IncomingState::kExpected;
    case IncomingState::kExpected:
      return to == IncomingState::kArriving || to == IncomingState::kEnded;
    case IncomingState::kArriving:
      return to == IncomingState::kLingering || to == IncomingState::kEnded;
    case IncomingState::kLingering:
      return to == IncomingState::kEnded;
    case IncomingState::kEnded:
      return to == IncomingState::kFree;
  }
  return false;
}

struct IncomingMessage {
  // Fields that every packet needs, kept together.
  Peer* peer = nullptr;
  PayloadSink* sink = nullptr;
  wire::MessageId id;
  std::uint32_t slot = 0;
  std::uint32_t packets = 0;
  std::uint32_t packet_bytes = 0;
  std::uint32_t transmitted = 0;           // data packets sent, by the sender's count
  std::optional<std::uint32_t> important;  // packets that must come; unset until a probe tells
  LossPolicy loss;
  base::Tracked<IncomingState> state{IncomingState::kFree};
  std::uint8_t priority = 0;
  Owed owed;
  bool all_sent = false;          // the sender has sent every packet, as far as it says
  bool in_control_queue = false;  // waits for its turn to say what is owed
  bool has_said_missing = false;  // a BITMAP was sent unasked since the latest probe
  PacketLedger ledger;
  StallWatch stall;

  std::uint32_t duplicates = 0;
  std::uint32_t bitmap_next = 0;       // packet the next BITMAP starts from
  std::uint32_t probe_generation = 0;  // generation of the probe to answer
  std::uint32_t delivered = 0;         // when it ended
  Outcome outcome = Outcome::kEverything;
  base::Instant last_stop;
  base::Instant first_arrival;
  base::Instant linger_due = kNever;
  base::Instant missing_due = kNever;  // when to send a BITMAP unasked
  base::Instant deadline = kNever;
  base::Instant armed = kNever;  // the earliest entry in the timer queue

  bool is_free() const { return state == IncomingState::kFree; }
  // The owner still waits for it.
  bool is_open() const { return !is_free() && state != IncomingState::kEnded; }

  bool is_enough() const {
    return ledger.missing() <= loss.allowed_missing(packets) && important &&
           ledger.important_delivered() >= *important;
  }
};

}  // namespace spillway::transport
