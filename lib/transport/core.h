// SPDX-License-Identifier: Apache-2.0
//
// State that the sending and the receiving half of an endpoint share: configuration, peers, timers,
// the queue of control packets to write, events and counters. Private to the endpoint; one thread.
//
// The control queue names the message that has something to say, not what: the packet is written
// when its turn comes, from the state at that time. Each message is in the queue at most once, and
// replies to unknown messages are limited (kMaxReplies; more are dropped, and their senders ask
// again), so it is bounded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "transport/endpoint.h"
#include "transport/link_share.h"
#include "transport/peer.h"
#include "transport/retired_operations.h"

namespace spillway::transport {

enum class TimerKind : std::uint8_t { kPeer, kOutgoing, kIncoming, kCredit, kSum };

struct Timer {
  base::Instant due;
  TimerKind kind = TimerKind::kPeer;
  std::uint32_t slot = 0;
};

// Says which object to look at again, and when. An owner keeps the true due time of each timer in
// the object it belongs to; the queue only promises to name that object no later than it was asked
// to. Timers move often and mostly later, so nothing is ever cancelled: an entry that comes up too
// early is put back by its owner with the true time, and one whose object is gone is ignored. It
// holds one useful entry per timer as long as owners arm() only for an earlier time than they armed
// last.
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
      std::max<std::int64_t>(1, bytes.count() / config.congestion.packet.count()));
}

struct ControlWork {
  enum class Kind : std::uint8_t { kProbe, kAnswer, kReply };
  Kind kind = Kind::kProbe;
  std::uint32_t slot = 0;  // of the outgoing or incoming message
  // kReply: about a message this endpoint does not have, or about none.
  std::uint16_t peer = 0;
  wire::ControlType reply = wire::ControlType::kWait;
  bool asks = false;  // CREDIT only: asks for a sign of life
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
  std::deque<ControlWork> control;
  std::uint32_t replies = 0;
  std::deque<Event> events;
  EndpointCounters counters;
  LinkShare link_share;                            // incoming
  RoundTrip round_trip;                            // over all peers
  RetiredOperations retired;                       // see Endpoint::retire()
  std::optional<wire::ControlPacket::Leave> left;  // contents of LEAVE, once this rank left
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

  // Watches a peer from which something is about to be due.
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
  // Interval at which a silent peer that owes something is asked for a sign of life. It is short,
  // so that the port of a dead process can refuse, and longer where there are many peers to ask.
  base::Duration watch_interval() const {
    constexpr base::Duration kSoon = base::milliseconds(50);
    constexpr std::size_t kPeersAskedSoon = 64;
    const auto share = static_cast<int>(peers.size() / kPeersAskedSoon) + 1;
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

  void queue_reply(const ControlWork& work) {
    if (replies < kMaxReplies) {
      ++replies;
      control.push_back(work);
    }
  }
};

}  // namespace spillway::transport
