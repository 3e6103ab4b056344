// SPDX-License-Identifier: Apache-2.0
//
// What the sending and the receiving half of an endpoint share: configuration, peers, timers, the
// queue of control packets to write, events and counters. Private to the endpoint.
//
// The control queue names who has something to say, not what: the packet is written when its turn
// comes, from the state at that time. Each message is in it at most once, and replies to unknown
// messages are few (kMaxReplies; more are dropped, their senders will ask again), so it is bounded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>

#include "transport/endpoint.h"
#include "transport/peer.h"
#include "transport/timer_queue.h"

namespace spillway::transport {

// Packets of a message that go out before any credit.
inline std::uint32_t unsolicited_packets(const EndpointTuning& tuning,
                                         std::optional<std::uint32_t> asked,
                                         std::uint32_t packet_bytes) {
  return asked.value_or(static_cast<std::uint32_t>(
      std::max<std::int64_t>(1, tuning.unsolicited.count() / packet_bytes)));
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
      timers.arm({now + config.tuning.peer_timeout / 8, TimerKind::kPeer, peer.rank});
    }
  }

  // Whether a message that is not in the table has ended, rather than not begun.
  bool is_over(const wire::MessageId& id, const Peer& peer) const {
    if (!floor) {
      return id.step <= peer.forgotten_step;
    }
    return id.step < (id.phase == wire::Phase::kPointToPoint ? peer.point_to_point_floor : *floor);
  }

  void queue_reply(const ControlWork& work) {
    if (replies < kMaxReplies) {
      ++replies;
      control.push_back(work);
    }
  }
};

}  // namespace spillway::transport
