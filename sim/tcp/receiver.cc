// SPDX-License-Identifier: Apache-2.0
#include "sim/tcp/receiver.h"

#include <algorithm>

#include "base/check.h"

namespace spillway::sim {

TcpReceiver::TcpReceiver(const scenario::TcpConfig& config, std::uint32_t segments)
    : segments_(segments),
      segments_per_ack_(config.segments_per_ack),
      came_((std::size_t{segments} + 63) / 64) {}

bool TcpReceiver::has(std::uint32_t sequence) const {
  return sequence < next_ || ((came_[sequence / 64] >> (sequence % 64)) & 1) != 0;
}

void TcpReceiver::take(std::uint32_t sequence) {
  came_[sequence / 64] |= std::uint64_t{1} << (sequence % 64);
  while (next_ < segments_ && ((came_[next_ / 64] >> (next_ % 64)) & 1) != 0) {
    ++next_;
  }
  if (complete()) {
    came_ = {};
  }
}

TcpReceiver::Acks TcpReceiver::on_segment(const TcpSegment& segment, bool marked) {
  SPILLWAY_CHECK(segment.sequence < segments_);
  Acks acks;
  flow_ = segment.flow;
  if (held_ > 0 && marked != marked_) {
    acks.ack[acks.count++] = release_held_ack();
  }
  marked_ = marked;
  if (held_ == 0) {
    oldest_timestamp_ns_ = segment.timestamp_ns;
  }
  const bool is_new = !has(segment.sequence);
  const bool in_order = segment.sequence == next_;
  if (is_new) {
    take(segment.sequence);
  }
  const bool filled_gap = next_ > segment.sequence + 1;
  ++held_;
  held_cause_ = segment.sequence;
  if (!in_order || filled_gap || complete() || held_ >= segments_per_ack_) {
    acks.ack[acks.count++] = release_held_ack();
  }
  return acks;
}

TcpSegment TcpReceiver::release_held_ack() {
  held_ = 0;
  return make_ack(held_cause_);
}

TcpSegment TcpReceiver::make_ack(std::uint32_t cause) const {
  const std::uint32_t lowest = cause - std::min(cause, kRunReach);
  const std::uint32_t highest = std::min(segments_ - 1, cause + kRunReach);
  std::uint32_t first = cause;
  std::uint32_t last = cause;
  if (cause >= next_) {
    while (first > lowest && has(first - 1)) {
      --first;
    }
    while (last < highest && has(last + 1)) {
      ++last;
    }
  }
  TcpSegment ack;
  ack.flow = flow_;
  ack.sequence = first;
  ack.acknowledged = next_;
  ack.selective = last;
  ack.is_ack = true;
  ack.echo_mark = marked_;
  ack.timestamp_ns = oldest_timestamp_ns_;
  return ack;
}

}  // namespace spillway::sim
