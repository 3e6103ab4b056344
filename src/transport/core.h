// SPDX-License-Identifier: Apache-2.0
//
// What the sending and the receiving half of an endpoint share: configuration, peers, timers, the
// queue of control packets to write, events and counters. Private to the endpoint; one thread.
//
// The control queue names who has something to say, not what: the packet is written when its turn
// comes, from the state at that time. Each message is in it at most once, and replies to unknown
// messages are few (kMaxReplies; more are dropped, their senders will ask again), so it is bounded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "transport/endpoint.h"
#include "transport/peer.h"

namespace spillway::transport {

enum class TimerKind : std::uint8_t { kPeer, kOutgoing, kIncoming, kCredit };

struct Timer {
  base::Instant due;
  TimerKind kind = TimerKind::kPeer;
  std::uint32_t slot = 0;
};

// When to look at what again. An owner keeps the true due time of each timer in the object it
// belongs to; the queue only promises to name that object no later than it was asked to. Timers
// move often and mostly later, so nothing is ever cancelled: an entry that comes up too early is
// put back by its owner with the true time, and one whose object is gone is ignored. It holds one
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

// Packets of a message that go out before any credit.
inline std::uint32_t unsolicited_packets(const ExchangeConfig& exchange,
                                         std::optional<std::uint32_t> asked,
                                         std::uint32_t packet_bytes) {
  return asked.value_or(static_cast<std::uint32_t>(
      std::max<std::int64_t>(1, exchange.unsolicited.count() / packet_bytes)));
}

struct ControlWork {
  enum class Kind : std::uint8_t { kProbe, kAnswer, kReply };
  Kind kind = Kind::kProbe;
  std::uint32_t slot = 0;  // of the outgoing or incoming message
  // kReply: about a message this endpoint does not have, or about none.
  std::uint16_t peer = 0;
  wire::ControlType reply = wire::ControlType::kWait;
  wire::MessageId message{};
  std::uint32_t generation = 0;
};

struct Core {
  static constexpr std::uint32_t kMaxReplies = 256;

  explicit Core(const EndpointConfig& config_) : config(config_), peers(config_.limits.peers) {}

  EndpointConfig config;
  PeerTable peers;
  TimerQueue timers;
  std::deque<ControlWork> control;
  std::uint32_t replies = 0;
  std::deque<Event> events;
  EndpointCounters counters;
  std::optional<std::uint32_t> floor;              // see Endpoint::retire_before()
  std::optional<wire::ControlPacket::Leave> left;  // what peers are told

  // The peer to exchange a message with, or a sentence about why that cannot be.
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

  // Something is about to be due from this peer: watch it.
  void await(Peer& peer, base::Instant now) {
    if (!peer.is_awaited()) {
      peer.last_heard = now;
    }
    watch(peer, now);
  }
  void watch(Peer& peer, base::Instant now) {
    if (!peer.timer_armed) {
      peer.timer_armed = true;
      timers.arm({now + config.exchange.peer_timeout / 8, TimerKind::kPeer, peer.rank});
    }
  }

  // Whether a message that is not in the table has ended, rather than not begun.
  bool is_over(const wire::MessageId& id, const Peer& peer) const {
    if (!floor) {
      return id.operation <= peer.forgotten_operation;
    }
    return id.operation <
           (id.phase == wire::Phase::kPointToPoint ? peer.point_to_point_floor : *floor);
  }

  void queue_reply(const ControlWork& work) {
    if (replies < kMaxReplies) {
      ++replies;
      control.push_back(work);
    }
  }
};

}  // namespace spillway::transport
