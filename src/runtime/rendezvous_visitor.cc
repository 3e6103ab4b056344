// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous_visitor.h"

#include <poll.h>
#include <sys/socket.h>

namespace spillway::runtime {

short Visitor::wanted_events() const {
  return static_cast<short>(POLLIN | (outbox_.empty() ? 0 : POLLOUT));
}

base::Result<std::optional<Frame>> Visitor::listen() {
  Blob bytes;
  gone_ = gone_ || receive_some(socket_, bytes) == StreamState::kClosed;
  if (!is_stranger()) {
    return std::optional<Frame>();
  }
  inbox_.append(bytes);
  return inbox_.next();
}

void Visitor::say(std::shared_ptr<const Blob> frame) {
  outbox_.push_back(std::move(frame));
  flush();
}

void Visitor::dismiss(const Refusal& refusal) {
  dismissed_ = true;
  say(std::make_shared<const Blob>(encode(refusal)));
}

void Visitor::flush() {
  while (!outbox_.empty() && !gone_) {
    gone_ = send_some(socket_, *outbox_.front(), sent_) == StreamState::kClosed;
    if (sent_ < outbox_.front()->size()) {
      return;
    }
    outbox_.pop_front();
    sent_ = 0;
  }
  if (dismissed_) {
    ::shutdown(socket_.get(), SHUT_WR);
  }
}

}  // namespace spillway::runtime
