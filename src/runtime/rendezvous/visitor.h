// SPDX-License-Identifier: Apache-2.0
//
// Someone who has connected to the host of a rendezvous: the stream, how far it has proved what it
// is, what came of it and what is still to be said. Nothing blocks. One thread.
//
//   stranger ── handshake, a good hello ──► guest, who waits for the others
//       └────── anything else ────────────► dismissed: hears why, and is kept until the end of that
//                                           is read, because closing earlier would destroy what is
//                                           on its way
//
// Limits: until its handshake is done a stranger may say kMaxHandshakeBytes at once. A frame is
// packed when it is about to be sent, so of a long gather a visitor holds one part.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "base/units.h"
#include "net/system_call.h"
#include "runtime/rendezvous/handshake.h"
#include "runtime/rendezvous/message.h"
#include "runtime/rendezvous/socket.h"

namespace spillway::runtime {

class Visitor {
 public:
  // A stranger, or someone dismissed, is not kept beyond `leave_by`.
  Visitor(Newcomer newcomer, const HostHandshake& handshake, base::Instant leave_by)
      : socket_(std::move(newcomer.socket)),
        source_(std::move(newcomer.source)),
        handshake_(handshake),
        leave_by_(leave_by) {}

  int fd() const { return socket_.get(); }
  const std::string& source() const { return source_; }
  // For poll.
  short wanted_events() const;
  // Whether poll has something to tell; a newcomer has not been asked yet.
  bool is_ready() const { return ready_; }
  void set_ready(bool ready) { ready_ = ready; }

  bool is_stranger() const { return !rank_ && !dismissed_; }
  // It has said something, and hopes for an answer.
  bool is_speaking() const { return spoke_ && !dismissed_; }
  std::optional<std::uint32_t> rank() const { return rank_; }
  bool is_overdue(base::Instant now) const { return !rank_ && now >= leave_by_; }

  // Takes what has come; of others than strangers it is thrown away.
  void read();
  // What a stranger has said after its handshake, which is carried on here; nothing while it is
  // incomplete. On an error it is to be dismissed: fault() says as what.
  base::Result<std::optional<Frame>> next();
  StrangerKind fault() const { return fault_; }
  // It has proved what there is to be proved.
  bool is_proven() const { return handshake_.is_done(); }
  // The stream has ended, or failed.
  bool is_gone() const { return gone_; }

  void become(std::uint32_t rank) { rank_ = rank; }
  void say(std::shared_ptr<const Frame> frame);
  void dismiss(const Refusal& refusal, base::Instant leave_by);
  // Sends what fits.
  void flush();
  bool has_said_all() const { return outbox_.empty() && packed_.empty(); }

 private:
  base::Result<std::optional<Frame>> next_frame();
  bool pack_next();

  net::UniqueFd socket_;
  std::string source_;
  HostHandshake handshake_;
  base::Instant leave_by_;
  std::optional<std::uint32_t> rank_{};
  bool ready_ = true;
  bool spoke_ = false;
  bool dismissed_ = false;
  bool gone_ = false;
  StrangerKind fault_ = StrangerKind::kNoise;
  FrameReader inbox_{kMaxHandshakeBytes};
  Channel channel_{};
  std::deque<std::shared_ptr<const Frame>> outbox_{};
  Blob packed_{};         // what is being sent
  std::size_t sent_ = 0;  // of that
};

}  // namespace spillway::runtime
