// SPDX-License-Identifier: Apache-2.0
//
// The sending half of an endpoint: outgoing messages, whose packets go out in the order of
// SendScheduler, and the probes that find out what came.
//
// OutgoingMessage is a plain record with small steps; the Sender decides when to take them. One
// thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "transport/core.h"
#include "transport/message.h"
#include "transport/message_table.h"

namespace spillway::transport {

// ------------------------------------------------------------------ a message to a peer

// The order in which the packets of a message are sent. It strides through the message, so that
// packets lost together, or cut off by a STOP, are not neighbours. A row loses a packet here and
// there, never a run of them. Packets of every importance are on the wire at any time, so that a
// switch under pressure has unimportant ones to drop.
class SendOrder {
 public:
  SendOrder() = default;
  // Near packets times the golden ratio, which keeps any run of positions far apart; coprime with
  // packets, so that every packet has its turn.
  explicit SendOrder(std::uint32_t packets)
      : packets_(packets),
        stride_(static_cast<std::uint32_t>(std::uint64_t{packets} * 618 / 1000)) {
    while (std::gcd(stride_, packets_) != 1) {
      ++stride_;
    }
  }

  std::uint32_t packet_at(std::uint32_t position) const {
    return static_cast<std::uint32_t>(std::uint64_t{position} * stride_ % packets_);
  }

 private:
  std::uint32_t packets_ = 1;
  std::uint32_t stride_ = 0;
};

// Where an outgoing message stands, and what may follow:
//
//   kWaiting ◄──► kQueued
//
//   kWaiting   waits for its receiver or for an answer: none of its packets may go
//   kQueued    has packets for its peer, and goes when it is its turn (SendScheduler)
enum class OutgoingState : std::uint8_t { kWaiting, kQueued };
inline constexpr unsigned kOutgoingStates = 2;

constexpr bool may_follow(OutgoingState from, OutgoingState to) {
  return from != to;
}

// A message under way to a peer: whether it may go, which packet goes next, what must be
// retransmitted.
//
// Over a stream packets are missing only if the receiver had no room for them before it expected
// the message. A BITMAP tells, once all that was sent has come.
//
// A message is sent once through in SendOrder (the first pass). Packets that turn out to be missing
// and that the budget does not forgive go first: those that a report of their path names, and after
// the first pass those that a BITMAP names.
struct OutgoingMessage {
  // Fields that every packet needs, kept together.
  Peer* peer = nullptr;
  PayloadSource* source = nullptr;
  wire::MessageId id;
  std::uint32_t slot = 0;
  std::uint64_t queue_number = 0;  // messages of one priority go in this order
  std::uint32_t packets = 0;
  std::uint32_t packet_bytes = 0;
  std::uint32_t next_position = 0;  // position in the first pass
  std::uint32_t transmitted = 0;
  std::uint8_t serial = 0;  // see SentPacket
  Carrier carrier = Carrier::kDatagrams;
  std::uint64_t stream_number = 0;  // of its latest packet over the stream
  LossPolicy loss;
  std::uint8_t priority = 0;
  std::uint8_t importance = 0;
  base::Tracked<OutgoingState> state{OutgoingState::kWaiting};
  bool is_paused = false;         // its receiver does not expect it yet
  bool in_control_queue = false;  // waits there to send a probe
  base::Duration probe_wait;      // doubles with every unanswered probe
  base::Instant last_sent;
  base::Instant probe_due;
  base::Instant probe_armed;  // the earliest entry in the timer queue
  SendOrder order;
  std::vector<std::uint8_t> packet_importance;  // empty: `importance` for all

  std::deque<std::uint16_t> repairs;  // to be sent again
  // When each packet that had to be repaired was sent again last; kNever: it is in `repairs`.
  std::map<std::uint16_t, base::Instant> repaired;
  std::uint32_t gaps = 0;                        // packets that reports of paths named
  std::uint32_t bitmap_generation = UINT32_MAX;  // of the probe whose BITMAPs are taken in
  std::uint32_t bitmap_quota = 0;                // unimportant packets that these may still add
  std::uint32_t important = 0;                   // packets that must arrive
  std::uint32_t generation = 0;                  // of the latest probe
  std::uint32_t least_missing = UINT32_MAX;      // fewest packets missing that BITMAPs told of
  StallWatch stall;

  SendLine& line() const { return peer->line(carrier); }
  bool is_streamed() const { return carrier == Carrier::kStream; }
  bool has_packet() const { return next_position < packets || !repairs.empty(); }
  bool all_sent() const { return !has_packet(); }
  // True if the message and its receiver let it go, whatever the peer's credit and window.
  bool may_go() const { return has_packet() && !is_paused; }

  std::uint8_t importance_of(std::uint32_t packet) const {
    return packet_importance.empty() ? importance : packet_importance[packet];
  }

  // Goes back to the first packet, as if none had been sent.
  void start_over() {
    next_position = 0;
    gaps = 0;
    repairs.clear();
    repaired.clear();
    order = SendOrder(packets);
  }

  // Fills in the stamp of the next packet, and moves on; has_packet() must hold.
  void take_next(wire::DataStamp& stamp, base::Instant now);

  // A report of its path named this packet.
  void on_gap(std::uint16_t packet);
  // Takes in a BITMAP that answers the latest probe, or follows it unasked. Packets sent again
  // after `seen_before` may be on their way.
  void on_bitmap(const wire::ControlPacket& bitmap, base::Instant seen_before);

  std::size_t memory_bytes() const;

 private:
  void repair(std::uint16_t packet);
};

// Decides which message of one carrier sends next. Each peer has a line of messages with packets
// for it: the most urgent first, among equals the oldest. They go one after the other, so that
// early messages arrive early and work that waits for them can go on. Lines whose first messages
// are equally urgent take turns, burst by burst. A line that may not be sent from (no credit, or
// its stream is full) is skipped until that changes.
//
// State of a line (Turn):
//
//   kNone ──► kReady ◄──► kBlocked       kReady, kBlocked ──► kNone when it is empty
//
// Holds pointers: the owner of peers and messages takes messages out before they are destroyed. One
// thread.

// Lines in turn: a circle with a front. The front is looked at for every packet and is kept where
// it is found at once; the rest moves only between bursts.
class ReadyLines {
 public:
  bool empty() const { return front_ == nullptr; }
  SendLine* front() const { return front_; }

  // Adds a line behind all others.
  void push_back(SendLine* line) {
    circle_.insert(circle_.begin() + static_cast<std::ptrdiff_t>(at_), line);
    at_ = circle_.size() == 1 ? 0 : at_ + 1;
    front_ = circle_[at_];
  }

  // The front becomes the last, and the next one the front.
  void rotate() {
    at_ = at_ + 1 == circle_.size() ? 0 : at_ + 1;
    front_ = circle_[at_];
  }

  void erase(const SendLine* line) {
    const auto found = std::find(circle_.begin(), circle_.end(), line);
    const auto index = static_cast<std::size_t>(found - circle_.begin());
    circle_.erase(found);
    at_ -= index < at_ ? 1 : 0;
    at_ = at_ == circle_.size() ? 0 : at_;
    front_ = circle_.empty() ? nullptr : circle_[at_];
  }

 private:
  SendLine* front_ = nullptr;
  std::size_t at_ = 0;
  std::vector<SendLine*> circle_;
};

class SendScheduler {
 public:
  // The message has packets that may go.
  void join(OutgoingMessage& message) {
    std::vector<OutgoingMessage*>& messages = message.line().messages;
    const auto at =
        std::find_if(messages.begin(), messages.end(), [&](const OutgoingMessage* other) {
          return message.priority != other->priority ? message.priority > other->priority
                                                     : message.queue_number < other->queue_number;
        });
    messages.insert(at, &message);
    message.state.enter(OutgoingState::kQueued);
    settle(message.line());
  }

  void leave(OutgoingMessage& message) {
    std::vector<OutgoingMessage*>& messages = message.line().messages;
    messages.erase(std::find(messages.begin(), messages.end(), &message));
    message.state.enter(OutgoingState::kWaiting);
    settle(message.line());
  }

  // The line whose turn it is, or null. Lines that may not be sent from are set to kBlocked.
  SendLine* front() {
    while (ready_mask_ != 0) {
      SendLine& line = *ready_[highest()].front();
      if (line.may_send()) {
        return &line;
      }
      take_off(line, Turn::kBlocked);
    }
    return nullptr;
  }

  // True if there is a line whose turn it may be.
  bool has_ready() const { return ready_mask_ != 0; }

  // The burst of the front line is over.
  void rotate() { ready_[highest()].rotate(); }

  // Puts the line back in the circle if it may be sent from again.
  void unblock(SendLine& line) {
    if (line.turn == Turn::kBlocked && line.may_send()) {
      line.turn = Turn::kNone;
      settle(line);
    }
  }

 private:
  std::size_t highest() const { return static_cast<std::size_t>(std::bit_width(ready_mask_) - 1); }

  // After the line changed: puts it where its first message belongs.
  void settle(SendLine& line) {
    if (line.messages.empty()) {
      take_off(line, Turn::kNone);
      return;
    }
    const std::uint8_t priority = line.messages.front()->priority;
    if (line.turn == Turn::kReady && line.turn_priority != priority) {
      take_off(line, Turn::kNone);
    }
    if (line.turn == Turn::kNone) {
      line.turn = Turn::kReady;
      line.turn_priority = priority;
      line.burst_left = 0;
      ready_[priority].push_back(&line);
      ready_mask_ |= 1U << priority;
    }
  }

  void take_off(SendLine& line, Turn next) {
    if (line.turn == Turn::kReady) {
      ReadyLines& list = ready_[line.turn_priority];
      list.erase(&line);
      ready_mask_ &= list.empty() ? ~(1U << line.turn_priority) : ~0U;
    }
    line.turn = next;
  }

  std::uint32_t ready_mask_ = 0;  // bit per priority whose list has entries
  std::array<ReadyLines, SPILLWAY_PRIORITIES> ready_;
};

// ------------------------------------------------------------------ the sender

// Timer: a message that neither sent nor heard anything for a while is probed, with doubling waits
// between ExchangeConfig's probe_min and probe_max. Right after its last packet the wait is only as
// long as packets may still be in flight, so that the answer is not about those.
class Sender {
 public:
  explicit Sender(Core& core);

  base::Status send(const SendOptions& options, base::Instant now);

  void on_stop(const wire::ControlPacket& packet, base::Instant now);
  void on_bitmap(const wire::ControlPacket& packet, base::Instant now);
  void on_credit(const wire::ControlPacket& packet, Peer& peer, base::Instant now);
  void on_wait(const wire::ControlPacket& packet, base::Instant now);
  void on_timer(std::uint32_t slot, base::Instant now);
  void end_messages_to(Peer& peer, Outcome outcome);
  // Messages that waited for room in the stream to this peer may go, if there is some now.
  void on_stream_room(Peer& peer) {
    scheduler(Carrier::kStream).unblock(peer.line(Carrier::kStream));
  }
  // Messages under way to this peer go on over the stream.
  void move_to_stream(Peer& peer);
  // Source of the message under way to `to` that has the stamp's packet; null if there is none.
  PayloadSource* source_of(const wire::DataStamp& stamp, std::uint16_t to);
  void withdraw(const wire::MessageId& id, std::uint16_t to);

  // Writes the probe of a slot from the control queue; false if it has nothing to say any more.
  bool write_probe(std::uint32_t slot, wire::ControlPacket& packet);
  // Datagrams only if their pacer lets them go.
  bool poll_data(base::Instant now, bool with_datagrams, Transmission& out);
  // Never kIncoming.
  Holdup holdup();

  std::size_t memory_bytes();

 private:
  static constexpr std::uint32_t kNoSlot = MessageTable<OutgoingMessage>::kNoSlot;

  SendScheduler& scheduler(Carrier carrier) {
    return schedulers_[static_cast<std::size_t>(carrier)];
  }
  SendLine* next_line(bool with_datagrams);
  std::uint32_t find(const wire::ControlPacket& packet) const;
  base::Status check(const SendOptions& options) const;
  void enqueue(OutgoingMessage& message);
  bool waits_for_its_turn(const OutgoingMessage& message) const;
  void queue_probe(std::uint32_t slot);
  void probe_after(std::uint32_t slot, base::Duration wait, base::Instant now);
  base::Duration report_timeout(const Peer& peer) const;
  base::Duration first_wait(const OutgoingMessage& message) const;
  void give_up_silent(Peer& peer, base::Instant now);
  // True if packets came that were not reported before.
  bool take_path_reports(const wire::ControlPacket& packet, Peer& peer, base::Instant now);
  void take_losses(const PathNews& news, Peer& peer);
  void repair_gaps(const PathNews& news);
  void begin(std::uint32_t slot, Peer& peer, const SendOptions& options, base::Instant now);
  void transmit(SendLine& line, base::Instant now, Transmission& out);
  void number_on_path(OutgoingMessage& message, base::Instant now, wire::DataStamp& stamp);
  void number_on_stream(OutgoingMessage& message, wire::DataStamp& stamp);
  bool needs_announcement(const OutgoingMessage& message) const;
  bool asks_for_report(const OutgoingMessage& message);
  void expect_report(OutgoingMessage& message, base::Instant now);
  base::Duration drained_after(const OutgoingMessage& message) const;
  void check_for_stall(OutgoingMessage& message, base::Instant now);
  void drop(std::uint32_t slot);
  void finish(std::uint32_t slot, Outcome outcome, std::uint32_t delivered);

  Core& core_;
  MessageTable<OutgoingMessage> messages_;
  std::array<SendScheduler, kCarriers> schedulers_;
  Carrier next_carrier_ = Carrier::kDatagrams;  // whose turn it is among equally urgent lines
  std::uint64_t queue_numbers_ = 0;
};

}  // namespace spillway::transport
