// SPDX-License-Identifier: Apache-2.0
//
// A client connected to the host of a rendezvous: its stream, the state of its handshake, its input
// and its queued output. Nothing blocks. One thread.
//
//   stranger ── handshake, a good hello ──► guest, which waits for the other ranks
//       └────── anything else ────────────► dismissed: gets the reason, and stays open until it has
//                                           read it, because an earlier close would destroy bytes
//                                           in flight
//
// Limits: until its handshake is done, a stranger may send at most kMaxHandshakeBytes per frame. A
// frame is packed just before it is sent, so a visitor holds only one part of a long gather.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "base/status.h"
#include "base/units.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/message.h"
#include "comm/rendezvous/socket.h"
#include "net/system_call.h"

namespace spillway::runtime {

class Visitor {
 public:
  // Unless it becomes a guest, the visitor is removed at `leave_by`.
  Visitor(std::uint64_t id, Newcomer newcomer, const HostHandshake& handshake,
          base::Instant leave_by)
      : id_(id), socket_(std::move(newcomer.socket)), handshake_(handshake), leave_by_(leave_by) {}

  std::uint64_t id() const { return id_; }
  int fd() const { return socket_.get(); }
  // Events for poll.
  short wanted_events() const;
  // True if poll reported events. Initially true: a newcomer has not been polled yet.
  bool is_ready() const { return ready_; }
  void set_ready(bool ready) { ready_ = ready; }

  bool is_stranger() const { return !rank_ && !dismissed_; }
  // True if the host has answered a part of its handshake.
  bool was_answered() const { return answered_; }
  std::optional<std::uint32_t> rank() const { return rank_; }
  bool is_overdue(base::Instant now) const { return !rank_ && now >= leave_by_; }

  // Reads available bytes; discards them unless this is a stranger.
  void read();
  // Continues the handshake, then returns the stranger's next frame after it; nullopt while
  // incomplete. After an error the visitor must be dismissed, and fault() says why.
  base::Result<std::optional<Frame>> next();
  StrangerKind fault() const { return fault_; }
  // True once it has proved the key, if there is one.
  bool is_proven() const { return handshake_.is_done(); }
  // True if the stream has ended or failed.
  bool is_gone() const { return gone_; }

  void become(std::uint32_t rank) { rank_ = rank; }
  void say(std::shared_ptr<const Frame> frame);
  void dismiss(const Refusal& refusal, base::Instant leave_by);
  // Sends as much as the socket takes.
  void flush();
  bool has_said_all() const { return outbox_.empty() && packed_.empty(); }

 private:
  base::Result<std::optional<Frame>> next_frame();
  bool pack_next();

  std::uint64_t id_;
  net::UniqueFd socket_;
  HostHandshake handshake_;
  base::Instant leave_by_;
  std::optional<std::uint32_t> rank_{};
  bool ready_ = true;
  bool answered_ = false;
  bool dismissed_ = false;
  bool gone_ = false;
  StrangerKind fault_ = StrangerKind::kNoise;
  FrameReader inbox_{kMaxHandshakeBytes};
  Channel channel_{};
  std::deque<std::shared_ptr<const Frame>> outbox_{};
  Blob packed_{};         // being sent
  std::size_t sent_ = 0;  // bytes of packed_ already sent
};

}  // namespace spillway::runtime
