// SPDX-License-Identifier: Apache-2.0
//
// Someone who has connected to the host of a rendezvous: the stream, what came of it and what is
// still to be said. Nothing blocks. One thread.
//
//   stranger ── a good hello ──► guest, who waits for the others
//       └────── anything else ─► dismissed: hears why, and is kept until the end of that is read,
//                                because closing earlier would destroy what is on its way
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "base/status.h"
#include "base/units.h"
#include "net/unique_fd.h"
#include "runtime/rendezvous_message.h"
#include "runtime/rendezvous_socket.h"

namespace spillway::runtime {

class Visitor {
 public:
  // A stranger, or someone dismissed, is not kept beyond `leave_by`.
  Visitor(net::UniqueFd socket, base::Instant leave_by)
      : socket_(std::move(socket)), leave_by_(leave_by) {}

  int fd() const { return socket_.get(); }
  // For poll.
  short wanted_events() const;
  // Whether poll has something to tell; a newcomer has not been asked yet.
  bool is_ready() const { return ready_; }
  void set_ready(bool ready) { ready_ = ready; }

  bool is_stranger() const { return !rank_ && !dismissed_; }
  std::optional<std::uint32_t> rank() const { return rank_; }
  bool is_overdue(base::Instant now) const { return !rank_ && now >= leave_by_; }

  // What a stranger has said; nothing while it is incomplete. Of others what comes is thrown away.
  base::Result<std::optional<Frame>> listen();
  // The stream has ended, or failed.
  bool is_gone() const { return gone_; }

  void become(std::uint32_t rank) { rank_ = rank; }
  void say(std::shared_ptr<const Blob> frame);
  void dismiss(const Refusal& refusal);
  // Sends what fits.
  void flush();
  bool has_said_all() const { return outbox_.empty(); }

 private:
  net::UniqueFd socket_;
  base::Instant leave_by_;
  std::optional<std::uint32_t> rank_{};
  bool ready_ = true;
  bool dismissed_ = false;
  bool gone_ = false;
  FrameReader inbox_{kMostHelloBytes};
  std::deque<std::shared_ptr<const Blob>> outbox_{};
  std::size_t sent_ = 0;  // of the first in the outbox
};

}  // namespace spillway::runtime
