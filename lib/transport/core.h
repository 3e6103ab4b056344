// SPDX-License-Identifier: Apache-2.0
//
// The state that the sending and the receiving half of an endpoint share: configuration, peers,
// timers, the queue of control packets to write, events and counters. Private to the endpoint and
// its port; one thread, but for PeerTable's const find().
//
// The control queue holds messages, not packets: a message's packet is written when its turn comes,
// from the state at that time. Each message is in the queue at most once, and replies about unknown
// messages are limited to kMaxReplies (further ones are dropped, and their senders probe again). So
// the queue is bounded.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "transport/credit.h"
#include "transport/endpoint.h"
#include "transport/link_share.h"
#include "transport/message_table.h"
#include "transport/path_set.h"
#include "transport/receive_window.h"
#include "transport/round_trip.h"

namespace spillway::transport {

// ------------------------------------------------------------------ peers

// Remembers which control packets of a peer were seen: a sliding window over their sequence
// numbers. A number is accepted once. Numbers that fell out of the window are refused, seen or not,
// so that a recorded packet can never be played again. Numbers have 64 bits and do not run out.
class ReplayWindow {
 public:
  static constexpr std::uint64_t kWidth = 256;

  // Numbers up to `newest` count as seen.
  explicit ReplayWindow(std::uint64_t newest = 0) : newest_(newest) { seen_.fill(~0ULL); }

  // True the first time a number is seen, as long as it is not too old to tell.
  bool accept(std::uint64_t sequence) {
    if (sequence <= newest_ && newest_ - sequence >= kWidth) {
      return false;
    }
    if (sequence > newest_) {
      advance(sequence);
    } else if ((word(sequence) & bit(sequence)) != 0) {
      return false;
    }
    word(sequence) |= bit(sequence);
    return true;
  }

 private:
  std::uint64_t& word(std::uint64_t sequence) { return seen_[sequence % kWidth / 64]; }
  static std::uint64_t bit(std::uint64_t sequence) { return std::uint64_t{1} << (sequence % 64); }

  void advance(std::uint64_t sequence) {
    if (sequence - newest_ >= kWidth) {
      seen_.fill(0);
    } else {
      for (std::uint64_t cleared = newest_ + 1; cleared != sequence + 1; ++cleared) {
        word(cleared) &= ~bit(cleared);
      }
    }
    newest_ = sequence;
  }

  std::uint64_t newest_;
  std::array<std::uint64_t, kWidth / 64> seen_;
};

struct IncomingMessage;
struct OutgoingMessage;

// A line's place in the sending order (SendScheduler).
enum class Turn : std::uint8_t {
  kNone,     // there is nothing for it
  kReady,    // in the circle for its first message's priority
  kBlocked,  // it may not be sent to
};

// The way to a peer over one carrier: messages with packets for it, in the order in which they go.
struct SendLine {
  SendLine(const Peer& peer_, Carrier carrier_) : peer(&peer_), carrier(carrier_) {}

  // Credit bounds datagrams, and the room in the stream bounds what goes over it.
  bool may_send() const;

  const Peer* peer;
  Carrier carrier;
  Turn turn = Turn::kNone;
  std::uint8_t turn_priority = 0;
  std::uint8_t burst_left = 0;  // packets, before the next path takes over
  RoundTrip end_wait;           // from the last packet of a message to the STOP
  std::vector<OutgoingMessage*> messages;
};

// State of one peer that outlives messages: paths and credit towards it, packets that came from it
// and the credit for them, whether it is alive.
struct Peer {
  Peer(std::uint16_t rank_, unsigned path_count, const PathConfig& path_config,
       const WindowConfig& window_config, base::Bytes packet, std::uint32_t standing_credit)
      : rank(rank_),
        balance(path_config.first_number, standing_credit),
        intake(path_config.first_number),
        paths(path_count, path_config),
        book(path_config.first_number, standing_credit),
        window(window_config, packet),
        stream_sent(path_config.first_number),
        stream_confirmed(path_config.first_number),
        stream_arrived(path_config.first_number),
        control_sequence(path_config.first_number),
        replay(path_config.first_number) {}
  Peer(const Peer&) = delete;  // lines point to it
  Peer& operator=(const Peer&) = delete;

  SendLine& line(Carrier carrier) { return lines[static_cast<std::size_t>(carrier)]; }
  Carrier control_carrier() const { return is_stream ? Carrier::kStream : Carrier::kDatagrams; }
  bool is_suspect() const { return refused && last_heard <= *refused; }
  // Something is due from it.
  bool is_awaited() const {
    return !has_left && (outgoing > 0 || incoming > 0 || sums > 0 || is_watched);
  }

  // Fields that every packet needs, kept together.
  std::uint16_t rank;
  bool dead = false;
  bool timer_armed = false;
  bool has_left = false;    // said that it no longer takes part
  bool is_watched = false;  // whether or not it owes anything
  bool sent_early = false;  // sent packets of a message that was not expected yet
  bool has_spoken = false;  // see Endpoint::Contact
  bool is_stream = false;   // see Endpoint::use_stream()
  StreamState stream = StreamState::kClosed;
  std::uint32_t unreported = 0;          // data packets from it since the last report
  std::uint32_t sent_since_asking = 0;   // packets to it, since a report was asked for or came
  std::uint8_t path = 0;                 // of the current burst of datagrams to it
  bool in_credit_queue = false;          // waits for its turn to be granted credit
  std::uint8_t credit_priority = 0;      // priority it waits with
  std::uint8_t priority = 0;             // of its latest message
  CreditBalance balance;                 // credit for sending to it
  std::uint64_t unsent = 0;              // packets of datagram messages that were never sent
  std::unique_ptr<PeerSession> session;  // its keys; null where the endpoint works with records
  std::array<SendLine, kCarriers> lines{SendLine(*this, Carrier::kDatagrams),
                                        SendLine(*this, Carrier::kStream)};
  base::Instant last_heard;
  // When its port was first said to refuse; anything heard from it later refutes that.
  std::optional<base::Instant> refused;
  base::Instant last_sent;            // latest data by datagram
  IncomingMessage* latest = nullptr;  // the message of the latest data packet; may be over
  PathIntake intake;                  // packets from it
  PathSet paths;                      // towards it

  CreditBook book;                    // for what it sends
  ReceiveWindow window;               // the most of it that may be unused
  bool knows_round_trip = false;      // the window does
  std::uint64_t missing = 0;          // packets from it that were sent and have not come
  std::uint32_t packet_bytes = 1500;  // UDP payload of what it sends, as of the latest message
  std::uint32_t outgoing = 0;         // messages under way to it; `incoming`: from it
  std::uint32_t incoming = 0;
  std::uint32_t streamed_out = 0;  // of these, over the stream
  std::uint32_t streamed_in = 0;
  std::uint64_t stream_sent;          // number of the latest data packet to it over the stream
  std::uint64_t stream_confirmed;     // number of the latest that came, as it reported
  std::uint64_t stream_arrived;       // number of the latest from it
  bool has_stream_news = false;       // stream_arrived is to be reported
  std::uint32_t sums = 0;             // under way with it
  RoundTrip round_trip;               // through the network, without time in hosts
  RoundTrip credit_wait;              // time without credit to send to it
  bool has_asked_for_credit = false;  // with a PROBE, since the last data packet
  double lost_share = 0.0;            // of packets sent lately
  std::uint64_t retirements_seen = 0;
  std::uint64_t control_sequence;    // latest number sent to it
  std::uint32_t longest_packet = 0;  // UDP payload of data sent to it
  base::Instant carried;             // when data about that long was last known to have arrived
  // The latest datagram to it that this host's kernel refused to send.
  int unsent_error = 0;
  std::uint32_t unsent_bytes = 0;
  base::Instant unsent_at;
  ReplayWindow replay;
  // Operations before this one are too old to tell finished from never expected.
  std::uint64_t forgotten_before = 0;
  std::uint64_t point_to_point_floor = 0;  // see Endpoint::retire_before()
  std::uint64_t point_to_point_sent = 0;   // number of the latest such message to it
};

inline bool SendLine::may_send() const {
  return carrier == Carrier::kStream ? peer->stream == StreamState::kReady
                                     : peer->balance.has_credit();
}

// Finds peers by rank, up to its limit.
class PeerTable {
 public:
  explicit PeerTable(std::uint32_t limit) : limit_(limit) {}

  bool is_full() const { return peers_.size() >= limit_; }
  // Changes nothing, so that other threads may call it while no peer is added.
  const Peer* find(std::uint16_t rank) const {
    const std::uint32_t slot = rank < slot_of_.size() ? slot_of_[rank] : kNoSlot;
    return slot == kNoSlot ? nullptr : &peers_[slot];
  }
  Peer* find(std::uint16_t rank) {
    // Packets of one peer tend to come together.
    if (latest_ == nullptr || latest_->rank != rank) {
      const std::uint32_t slot = rank < slot_of_.size() ? slot_of_[rank] : kNoSlot;
      if (slot == kNoSlot) {
        return nullptr;
      }
      latest_ = &peers_[slot];
    }
    return latest_;
  }
  void prefetch_latest() const {
    if (latest_ != nullptr) {
      const auto* bytes = reinterpret_cast<const char*>(latest_);
      __builtin_prefetch(bytes);
      __builtin_prefetch(bytes + 64);
      __builtin_prefetch(bytes + 128);
    }
  }
  // A new peer; the table must not be full nor hold the rank.
  Peer& add(std::uint16_t rank, unsigned paths, const PathConfig& path_config,
            const WindowConfig& window, base::Bytes packet, std::uint32_t standing_credit) {
    if (rank >= slot_of_.size()) {
      slot_of_.resize(rank + 1U, kNoSlot);
    }
    slot_of_[rank] = static_cast<std::uint32_t>(peers_.size());
    return peers_.emplace_back(rank, paths, path_config, window, packet, standing_credit);
  }
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (Peer& peer : peers_) {
      visit(peer);
    }
  }
  std::size_t size() const { return peers_.size(); }
  std::size_t memory_bytes() const;

 private:
  static constexpr std::uint32_t kNoSlot = UINT32_MAX;

  Peer* latest_ = nullptr;  // found last
  std::uint32_t limit_;
  std::deque<Peer> peers_;              // references stay valid
  std::vector<std::uint32_t> slot_of_;  // by rank
};

inline std::size_t PeerTable::memory_bytes() const {
  std::size_t bytes = slot_of_.size() * sizeof(std::uint32_t);
  for (const Peer& peer : peers_) {
    bytes += sizeof(Peer) + peer.paths.memory_bytes();
    for (const SendLine& line : peer.lines) {
      bytes += line.messages.capacity() * sizeof(line.messages[0]);
    }
  }
  return bytes;
}

// ------------------------------------------------------------------ the core

enum class TimerKind : std::uint8_t { kPeer, kOutgoing, kIncoming, kCredit, kSum };

struct Timer {
  base::Instant due;
  TimerKind kind = TimerKind::kPeer;
  std::uint32_t slot = 0;
};

// Says which object to look at again, and when. The owner of an object keeps the true due time of
// its timer in the object. The queue only promises to return the object no later than that. Timers
// move often and mostly later, so no entry is ever cancelled: the owner puts an entry that comes up
// too early back with the true time, and ignores one whose object is gone. The queue holds one
// useful entry per timer as long as owners arm() only for an earlier time than they armed last.
class TimerQueue {
 public:
  bool empty() const { return heap_.empty(); }
  base::Instant next_due() const { return heap_.front().due; }

  void arm(const Timer& timer) {
    heap_.push_back(timer);
    std::push_heap(heap_.begin(), heap_.end(), is_later);
  }

  Timer pop() {
    std::pop_heap(heap_.begin(), heap_.end(), is_later);
    const Timer timer = heap_.back();
    heap_.pop_back();
    return timer;
  }

  std::size_t memory_bytes() const { return heap_.capacity() * sizeof(Timer); }

 private:
  // A total order, so that equal times come up the same way on every machine.
  static bool is_later(const Timer& a, const Timer& b) {
    if (a.due != b.due) {
      return a.due > b.due;
    }
    return a.kind != b.kind ? a.kind > b.kind : a.slot > b.slot;
  }

  std::vector<Timer> heap_;
};

// Converts a size from the exchange's configuration to packets, at least one.
inline std::uint32_t packets_in(base::Bytes bytes, const EndpointConfig& config) {
  return static_cast<std::uint32_t>(
      std::max<std::int64_t>(1, bytes.count() / config.exchange.packet.count()));
}

struct PendingControl {
  enum class Kind : std::uint8_t { kProbe, kReport, kReply };
  Kind kind = Kind::kProbe;
  std::uint32_t slot = 0;  // of the outgoing or incoming message
  // kReply only: about a message that this endpoint does not have, or about none.
  std::uint16_t peer = 0;
  wire::ControlType reply = wire::ControlType::kWait;
  bool ping = false;  // CREDIT only: the peer must reply, to show that it is alive
  wire::MessageId message{};
  std::uint32_t generation = 0;
  wire::ControlPacket::Stop stop{.outcome = Outcome::kCancelled, .delivered = 0};
};

struct Core {
  static constexpr std::uint32_t kMaxReplies = 256;

  explicit Core(const EndpointConfig& config_)
      : config(config_), peers(config_.limits.peers), link_share(config_.exchange.receive_rate) {}

  EndpointConfig config;
  PeerTable peers;
  TimerQueue timers;
  std::deque<PendingControl> control;
  std::uint32_t replies = 0;
  std::deque<Event> events;
  EndpointCounters counters;
  LinkShare link_share;                            // incoming
  RoundTrip round_trip;                            // over all peers
  std::uint32_t senders = 0;                       // peers from which data came
  RetiredOperations retired;                       // see Endpoint::retire()
  std::optional<wire::ControlPacket::Leave> left;  // contents of LEAVE, after this rank left
  wire::Mismatch mismatch;                         // sent with LEAVE, if its cause is kMismatch

  // The peer to exchange a message with, or an error that says why there is none.
  base::Result<Peer*> find_living(std::uint16_t rank) {
    Peer* peer = peers.find(rank);
    if (peer != nullptr && !peer->dead) {
      return peer;
    }
    if (peer == nullptr) {
      return base::invalid_argument("rank " + std::to_string(rank) +
                                    " is not a peer; add_peer() first");
    }
    return base::Status(base::StatusCode::kPeerFailed, "rank " + std::to_string(rank) + " is dead");
  }

  // Watches a peer from which something will be due.
  void await(Peer& peer, base::Instant now) {
    if (!peer.is_awaited()) {
      peer.last_heard = now;
    }
    watch(peer, now);
  }
  void watch(Peer& peer, base::Instant now) {
    if (!peer.timer_armed) {
      peer.timer_armed = true;
      timers.arm({now + watch_interval(), TimerKind::kPeer, peer.rank});
    }
  }
  // Interval at which a silent peer is pinged while something is due from it. It is short, so that
  // the port of a dead process can refuse soon, and longer where there are many peers to ping.
  base::Duration watch_interval() const {
    constexpr base::Duration kSoon = base::milliseconds(50);
    constexpr std::size_t kPeersPingedSoon = 64;
    const auto share = static_cast<int>(peers.size() / kPeersPingedSoon) + 1;
    return std::min(kSoon * share, config.exchange.peer_timeout / 8);
  }

  // Every operation of this phase below the returned number is over.
  std::uint64_t floor_of(wire::Phase phase, const Peer& peer) const {
    return phase == wire::Phase::kPointToPoint ? peer.point_to_point_floor : retired.floor();
  }

  // True if a message that is not in the table has ended, false if it has not begun.
  bool is_over(const wire::MessageId& id, const Peer& peer) const {
    if (!retired.is_used()) {
      return id.operation < peer.forgotten_before;
    }
    return id.phase == wire::Phase::kPointToPoint ? id.operation < peer.point_to_point_floor
                                                  : retired.contains(id.operation);
  }

  void queue_reply(const PendingControl& work) {
    if (replies < kMaxReplies) {
      ++replies;
      control.push_back(work);
    }
  }
};

}  // namespace spillway::transport
