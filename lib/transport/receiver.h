// SPDX-License-Identifier: Apache-2.0
//
// The receiving half of an endpoint: expected messages, credit for their senders, answers to
// probes, and the end of messages.
//
// Only expected messages take memory. Packets of others are counted and dropped, or kept as far as
// limits.early_bytes allows; a probe for one is answered with WAIT, so that its sender knows this
// end is alive. The latest limits.finished_kept ended messages are kept. Older ones leave only how
// they ended (EndedMessages) while their operations go on, and nothing afterwards.
//
// IncomingMessage is a plain record with small steps; the Receiver decides when to take them. One
// thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/check.h"
#include "transport/core.h"
#include "transport/credit.h"
#include "transport/endpoint.h"
#include "transport/message.h"
#include "transport/message_table.h"
#include "wire/packet.h"

namespace spillway::transport {

// ------------------------------------------------------------------ a message from a peer

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

  // The message turns out to have fewer packets, at least 1. False if one behind the last has come.
  bool shorten(std::uint32_t packets) {
    const auto end = planes_.begin() + packets;
    const bool fits = std::all_of(end, planes_.end(), [](std::uint8_t each) { return each == 0; });
    planes_.erase(fits ? end : planes_.end(), planes_.end());
    return fits;
  }

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
    kStop = 1 << 0,    // the message is over
    kCredit = 1 << 1,  // grants, and reports of paths
    kPing = 1 << 2,    // sent with the credit: asks for a sign of life
    kBitmap = 1 << 3,  // missing packets, range by range
  };

  bool empty() const { return items_ == 0; }
  bool has(Item item) const { return (items_ & item) != 0; }
  // A question is sent with a credit, so it adds one.
  void add(Item item) { items_ |= item == kPing ? kPing | kCredit : item; }
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

// A message expected from a peer: its state, what arrived packet by packet, and what its sender
// must still be told.
//
// It is over when everything came; when the budget is met, every important packet is there and
// stragglers had their chance (lingering); or at its deadline. An ended message stays in the table
// for a while without its ledger, so that a sender that missed the STOP gets another.
//
// Order and duplicates make no difference (PacketLedger): a packet counts once, and a longer copy
// replaces a shorter one.
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
  Carrier carrier = Carrier::kDatagrams;
  base::Tracked<IncomingState> state{IncomingState::kFree};
  std::uint8_t priority = 0;
  Owed owed;
  bool may_be_shorter = false;        // its sender has not told yet how many packets it has
  bool all_sent = false;              // the sender has sent every packet, as far as it says
  bool in_control_queue = false;      // waits for its turn to say what is owed
  bool has_reported_missing = false;  // a BITMAP was sent unasked since the latest probe
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

  bool is_streamed() const { return carrier == Carrier::kStream; }
  // Packets that it still needs credit for, once it has begun.
  std::uint32_t wanted() const {
    return is_streamed() || state == IncomingState::kExpected ? 0 : packets - ledger.delivered();
  }
  bool is_free() const { return state == IncomingState::kFree; }
  // The owner still waits for it.
  bool is_open() const { return !is_free() && state != IncomingState::kEnded; }

  bool is_enough() const {
    return ledger.missing() <= loss.allowed_missing(packets) && important &&
           ledger.important_delivered() >= *important;
  }
};

// Packets that came before their message was expected: kept for a while, so that a rank that is a
// little ahead of the others need not send twice.
//
// Bounded by bytes over all senders; the oldest messages are dropped first. Few messages are kept
// at a time, so lookups are linear. One thread.

// The packets kept of one message, in the order of arrival.
struct EarlyMessage {
  struct Data {
    DataArrival arrival;  // view() points it at the fields below
    wire::OpenedPacket packet;
    std::vector<std::uint8_t> bytes;
    base::Instant at;

    DataArrival view() const {
      DataArrival seen = arrival;
      seen.packet = arrival.packet != nullptr ? &packet : nullptr;
      seen.bytes = bytes;
      return seen;
    }
  };

  wire::MessageId id;
  bool is_signed = true;  // `id` has its signature
  std::vector<Data> data;
  std::optional<wire::ControlPacket> probe;  // the latest
  std::size_t kept_bytes = 0;
  bool is_held = false;  // its sender was told to wait
};

class EarlyArrivals {
 public:
  explicit EarlyArrivals(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  bool is_on() const { return max_bytes_ > 0; }
  // True if this is the first that was heard of the message. Packets that do not say their
  // message's signature are kept apart until the message is expected.
  bool keep(const DataArrival& arrival, base::Instant now);
  void keep(const wire::ControlPacket& probe);
  // Removes and returns what was kept of a message.
  std::optional<EarlyMessage> take(const wire::MessageId& id);
  // The signature of a kept message that is like this one.
  std::optional<std::uint64_t> signature_of(const wire::MessageId& id) const;
  std::size_t kept_bytes() const { return kept_bytes_; }
  // More than half of the room is taken.
  bool is_filling() const { return kept_bytes_ * 2 > max_bytes_; }
  // True once for each kept message whose sender must wait because the room is filling.
  bool holds(const wire::MessageId& id);

 private:
  // Overhead of an entry, besides its bytes.
  static constexpr std::size_t kEntryBytes = sizeof(EarlyMessage::Data);

  EarlyMessage* find(const wire::MessageId& id, bool is_signed);
  EarlyMessage& message(const wire::MessageId& id, bool is_signed);
  void add(EarlyMessage& message, std::size_t bytes);

  std::size_t max_bytes_;
  std::size_t kept_bytes_ = 0;
  std::deque<EarlyMessage> messages_;  // the oldest first
};

// ------------------------------------------------------------------ the receiver

class Receiver {
 public:
  explicit Receiver(Core& core);

  base::Status expect(const ReceiveOptions& options, base::Instant now);
  void cancel(const wire::MessageId& id, base::Instant now);
  void withdraw(const wire::MessageId& id, base::Instant now);
  // Forgets ended messages of operations that are over: those are recognized without them.
  void forget_ended(std::uint64_t operation) { ended_.forget(operation); }
  void forget_ended_before(std::uint64_t operation) { ended_.forget_before(operation); }
  void forget_ended_before(std::uint16_t peer, std::uint64_t operation) {
    ended_.forget_before(peer, operation);
  }

  void complete(DataArrival& arrival, Peer& peer);  // see Endpoint::complete()
  void on_data(const DataArrival& arrival, Peer& peer, base::Instant now);
  void on_probe(const wire::ControlPacket& packet, Peer& peer, base::Instant now);
  void on_timer(std::uint32_t slot, base::Instant now);
  void on_credit_timer(base::Instant now);
  void end_messages_from(Peer& peer, base::Instant now);
  // Messages expected from this peer go on over the stream.
  void move_to_stream(Peer& peer);
  // Asks a peer that has long been silent for a sign of life.
  void ping(Peer& peer);

  // Writes the next answer of a slot from the control queue; false if nothing is left to say.
  bool write_report(std::uint32_t slot, wire::ControlPacket& packet, base::Instant now);
  // Whether that slot has more to say.
  bool has_more_reports(std::uint32_t slot);
  void leave_queue(std::uint32_t slot);

  std::size_t memory_bytes();

 private:
  // Bytes that a packet takes of a link besides its payload. Credit is counted with IPv4's headers,
  // whatever carries the packets.
  static constexpr std::uint32_t kFrameOverhead =
      spillway_frame_overhead(0) + SPILLWAY_WIRE_OVERHEAD;

  using Table = MessageTable<IncomingMessage>;
  static constexpr std::uint32_t kNoSlot = Table::kNoSlot;

  base::Status check(const ReceiveOptions& options) const;
  IncomingMessage* find(const wire::MessageId& id, Peer& peer);
  void count_unexpected(const wire::MessageId& id, const Peer& peer);
  bool number_datagram(const DataArrival& arrival, Peer& peer, base::Instant now);
  static bool number_on_stream(const wire::DataStamp& stamp, Peer& peer);
  void take_unexpected(const DataArrival& arrival, Peer& peer, base::Instant now);
  void steer_pacer(const Peer& peer, const DataArrival& arrival);
  void watch_network(const DataArrival& arrival, Peer& peer, const IncomingMessage* message,
                     base::Instant now);
  void take(IncomingMessage& message, const DataArrival& arrival, base::Instant now);
  void begin(IncomingMessage& message, base::Instant now);
  bool agrees_on(std::uint32_t packets, IncomingMessage& message);
  void check_for_stall(IncomingMessage& message, std::uint32_t newly_sent, base::Instant now);
  void finish_if_enough(IncomingMessage& message, base::Instant now);
  void expect_no_more(IncomingMessage& message, const wire::DataStamp& stamp, base::Instant now);
  void report_missing(IncomingMessage& message);
  void finish(std::uint32_t slot, Outcome outcome, base::Instant now);
  void end(std::uint32_t slot, Outcome outcome, base::Instant now);
  void release_oldest();
  void queue_stop(EndedMessage& ended, const wire::MessageId& id, std::uint32_t generation,
                  base::Instant now);
  void report_unexpected(const wire::MessageId& id, bool contradicts);
  void take_early(const wire::MessageId& id, Peer& peer, base::Instant now);
  void queue_for_credit(Peer& peer);
  void queue_credit(Peer& peer);
  void queue_report(std::uint32_t slot);
  void queue_stop(std::uint32_t slot, base::Instant now);
  void arm(std::uint32_t slot, base::Instant due);
  void arm_pacer();
  std::uint32_t standing_credit(const Peer& peer) const;
  std::uint32_t grantable(Peer& peer) const;
  const RoundTrip& way_to(const Peer& peer) const;

  Core& core_;
  Table messages_;
  EarlyArrivals early_;
  CreditPacer pacer_;
  base::Instant pacer_armed_ = kNever;
  std::deque<std::uint32_t> finished_;  // slots, the oldest first
  EndedMessages ended_;                 // released from finished_
  std::uint32_t active_ = 0;
};

}  // namespace spillway::transport
