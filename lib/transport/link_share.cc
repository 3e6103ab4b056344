// SPDX-License-Identifier: Apache-2.0
#include "transport/link_share.h"

#include <algorithm>
#include <utility>

#include "transport/round_trip.h"
#include "wire/packet.h"

namespace spillway::transport {
namespace {

// Bytes that a packet takes of the link besides its payload, with IPv4's headers.
constexpr std::int64_t kFrameOverhead = spillway_frame_overhead(0) + SPILLWAY_WIRE_OVERHEAD;

}  // namespace

base::Duration LinkShare::waited(Lane& lane, std::uint32_t transit_us, base::Instant now) {
  if (!lane.is_known) {
    lane = {.is_known = true, .latest_us = transit_us, .stretch = now};
  }
  lane.taken_us += between_stamps(lane.latest_us, transit_us);
  lane.latest_us = transit_us;
  const std::int64_t taken = lane.taken_us;
  if (now - lane.stretch >= kLeastCounts) {
    // After a pause the old minimum is stale: clocks drifted meanwhile.
    lane.least_before_us = now - lane.stretch >= kLeastCounts * 2 ? taken : lane.least_us;
    lane.least_us = taken;
    lane.stretch = now;
  }
  lane.least_us = std::min(lane.least_us, taken);
  return base::microseconds(taken - std::min(lane.least_us, lane.least_before_us));
}

base::Duration LinkShare::add(const Arrival& arrival, base::Instant now) {
  if (arrival.peer >= lanes_.size()) {
    lanes_.resize(arrival.peer + 1U);
  }
  const base::Duration queued = waited(lanes_[arrival.peer], arrival.transit_us, now);
  const base::Duration gap = now - latest_;
  const bool waited_before = std::exchange(has_waited_, queued > kNoise);
  const bool was_busy = has_waited_ && waited_before && gap <= queued;
  latest_ = now;
  if (!window_ || (gap > kWindow && !was_busy)) {
    window_ = {.begun = now};  // a pause belongs to no window
  } else {
    add_to_window(arrival, was_busy ? std::optional(gap) : std::nullopt);
    if (now - window_->begun >= kWindow) {
      close_window(now);
    }
  }
  streamed_ = 0;
  return queued;
}

void LinkShare::add_streamed(std::int64_t bytes) {
  streamed_ += bytes + kFrameOverhead;
}

// `busy`: how long the link was busy before it came, if it surely was.
void LinkShare::add_to_window(const Arrival& arrival, std::optional<base::Duration> busy) {
  const std::int64_t bytes = arrival.bytes + kFrameOverhead + streamed_;
  window_->bytes += bytes;
  if (busy) {
    window_->queued_bytes += bytes;
    window_->queued_time += *busy;
    window_->has_others |= arrival.peer != window_->peer.value_or(arrival.peer);
    window_->peer = arrival.peer;
  }
}

void LinkShare::close_window(base::Instant now) {
  const auto time = static_cast<double>((now - window_->begun).count());
  const auto queued_time = static_cast<double>(window_->queued_time.count());
  const double carried = static_cast<double>(rate_.count()) / 8e9 * time;  // at most
  if (static_cast<double>(window_->bytes) >= kFull * carried) {
    tell(carried, time, now);
  } else if (window_->has_others && queued_time >= kLeastQueued * time) {
    tell(static_cast<double>(window_->queued_bytes), queued_time, now);
  }
  window_ = {.begun = now};
}

void LinkShare::tell(double bytes, double time_ns, base::Instant now) {
  const double kept = std::max(0.0, 1.0 - time_ns / static_cast<double>(kMemory.count()));
  bytes_ = bytes_ * kept + bytes;
  time_ns_ = time_ns_ * kept + time_ns;
  told_ = now;
}

std::optional<double> LinkShare::share(base::Instant now) const {
  if (rate_ > kFastest || time_ns_ < static_cast<double>(kEnough.count()) || now - told_ > kStale) {
    return std::nullopt;
  }
  return std::min(1.0, bytes_ * 8e9 / time_ns_ / static_cast<double>(rate_.count()));
}

}  // namespace spillway::transport
