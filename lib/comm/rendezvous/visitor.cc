// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/visitor.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

namespace spillway::runtime {

short Visitor::wanted_events() const {
  return static_cast<short>(POLLIN | (has_said_all() ? 0 : POLLOUT));
}

void Visitor::read() {
  Blob bytes;
  gone_ = gone_ || receive_some(socket_, bytes) == StreamState::kClosed;
  if (is_stranger()) {
    inbox_.append(bytes);
  }
}

base::Result<std::optional<Frame>> Visitor::next() {
  while (!handshake_.is_done()) {
    const base::Result<std::optional<Frame>> frame = next_frame();
    if (!frame.ok() || !frame->has_value()) {
      return frame;
    }
    base::Result<std::optional<Frame>> answer = handshake_.take(**frame);
    if (!answer.ok()) {
      fault_ = handshake_.fault();
      return answer.status();
    }
    if (answer->has_value()) {
      answered_ = true;
      say(std::make_shared<const Frame>(std::move(**answer)));
    }
    if (handshake_.is_done()) {
      channel_ = handshake_.channel();
      inbox_.set_most_body_bytes(kMaxHelloBytes);
    }
  }
  base::Result<std::optional<Frame>> frame = next_frame();
  if (!frame.ok() || !frame->has_value()) {
    return frame;
  }
  base::Result<Frame> opened = channel_.unpack(std::move(**frame));
  if (!opened.ok()) {
    fault_ = StrangerKind::kUnproven;
    return opened.status();
  }
  return std::optional<Frame>(std::move(opened).value());
}

base::Result<std::optional<Frame>> Visitor::next_frame() {
  fault_ = StrangerKind::kNoise;
  return inbox_.next();
}

void Visitor::say(std::shared_ptr<const Frame> frame) {
  outbox_.push_back(std::move(frame));
  flush();
}

void Visitor::dismiss(const Refusal& refusal, base::Instant leave_by) {
  dismissed_ = true;
  leave_by_ = std::min(leave_by_, leave_by);
  say(std::make_shared<const Frame>(encode(refusal)));
}

// True if there is anything to send.
bool Visitor::pack_next() {
  if (packed_.empty() && !outbox_.empty()) {
    base::Result<Blob> packed = channel_.pack(*outbox_.front());
    outbox_.pop_front();
    sent_ = 0;
    gone_ = gone_ || !packed.ok();  // without packing, nothing can be sent
    packed_ = packed.ok() ? std::move(packed).value() : Blob();
  }
  return !packed_.empty() && !gone_;
}

void Visitor::flush() {
  while (pack_next()) {
    gone_ = send_some(socket_, packed_, sent_) == StreamState::kClosed;
    if (sent_ < packed_.size()) {
      return;
    }
    packed_.clear();
  }
  if (dismissed_) {
    ::shutdown(socket_.get(), SHUT_WR);
  }
}

}  // namespace spillway::runtime
