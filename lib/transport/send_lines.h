// SPDX-License-Identifier: Apache-2.0
//
// Decides which message sends next. Each peer has a line of messages with packets for it: the most
// urgent first, among equals the oldest. They go one after the other, so that early messages arrive
// early and work that waits for them can go on. Peers whose first messages are equally urgent take
// turns, burst by burst. A peer that may not be sent to (no credit, or its window is full) is
// skipped until that changes.
//
// State of a peer (Turn):
//
//   kNone ──► kReady ◄──► kBlocked       kReady, kBlocked ──► kNone when its line is empty
//
// Holds pointers: the owner of peers and messages takes messages out before they are destroyed. One
// thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "transport/outgoing_message.h"
#include "transport/peer.h"

namespace spillway::transport {

// Peers in turn: a circle with a front. The front is looked at for every packet and is kept where
// it is found at once; the rest moves only between bursts.
class ReadyPeers {
 public:
  bool empty() const { return front_ == nullptr; }
  Peer* front() const { return front_; }

  // Adds a peer behind all others.
  void push_back(Peer* peer) {
    circle_.insert(circle_.begin() + static_cast<std::ptrdiff_t>(at_), peer);
    at_ = circle_.size() == 1 ? 0 : at_ + 1;
    front_ = circle_[at_];
  }

  // The front becomes the last, and the next one the front.
  void rotate() {
    at_ = at_ + 1 == circle_.size() ? 0 : at_ + 1;
    front_ = circle_[at_];
  }

  void erase(const Peer* peer) {
    const auto found = std::find(circle_.begin(), circle_.end(), peer);
    const auto index = static_cast<std::size_t>(found - circle_.begin());
    circle_.erase(found);
    at_ -= index < at_ ? 1 : 0;
    at_ = at_ == circle_.size() ? 0 : at_;
    front_ = circle_.empty() ? nullptr : circle_[at_];
  }

 private:
  Peer* front_ = nullptr;
  std::size_t at_ = 0;
  std::vector<Peer*> circle_;
};

class SendLines {
 public:
  // The message has packets that may go.
  void join(OutgoingMessage& message) {
    std::vector<OutgoingMessage*>& line = message.peer->line;
    const auto at = std::find_if(line.begin(), line.end(), [&](const OutgoingMessage* other) {
      return message.priority != other->priority ? message.priority > other->priority
                                                 : message.birth < other->birth;
    });
    line.insert(at, &message);
    message.state.enter(OutgoingState::kInLine);
    settle(*message.peer);
  }

  void leave(OutgoingMessage& message) {
    std::vector<OutgoingMessage*>& line = message.peer->line;
    line.erase(std::find(line.begin(), line.end(), &message));
    message.state.enter(OutgoingState::kWaiting);
    settle(*message.peer);
  }

  // The peer whose turn it is, or null. Peers that may not be sent to are set to kBlocked.
  Peer* front() {
    while (ready_mask_ != 0) {
      Peer& peer = *ready_[highest()].front();
      if (peer.may_send()) {
        return &peer;
      }
      take_off(peer, Turn::kBlocked);
    }
    return nullptr;
  }

  // True if there is a peer whose turn it may be.
  bool has_ready() const { return ready_mask_ != 0; }

  // The burst to the front peer is over.
  void rotate() { ready_[highest()].rotate(); }

  // Puts the peer back in line if it may be sent to again.
  void unblock(Peer& peer) {
    if (peer.turn == Turn::kBlocked && peer.may_send()) {
      peer.turn = Turn::kNone;
      settle(peer);
    }
  }

 private:
  std::size_t highest() const { return static_cast<std::size_t>(std::bit_width(ready_mask_) - 1); }

  // After the peer's line changed: puts it where its first message belongs.
  void settle(Peer& peer) {
    if (peer.line.empty()) {
      take_off(peer, Turn::kNone);
      return;
    }
    const std::uint8_t priority = peer.line.front()->priority;
    if (peer.turn == Turn::kReady && peer.turn_priority != priority) {
      take_off(peer, Turn::kNone);
    }
    if (peer.turn == Turn::kNone) {
      peer.turn = Turn::kReady;
      peer.turn_priority = priority;
      peer.burst_left = 0;
      ready_[priority].push_back(&peer);
      ready_mask_ |= 1U << priority;
    }
  }

  void take_off(Peer& peer, Turn next) {
    if (peer.turn == Turn::kReady) {
      ReadyPeers& list = ready_[peer.turn_priority];
      list.erase(&peer);
      ready_mask_ &= list.empty() ? ~(1U << peer.turn_priority) : ~0U;
    }
    peer.turn = next;
  }

  std::uint32_t ready_mask_ = 0;  // bit per priority whose list has entries
  std::array<ReadyPeers, SPILLWAY_PRIORITIES> ready_;
};

}  // namespace spillway::transport
