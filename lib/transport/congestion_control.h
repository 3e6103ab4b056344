// SPDX-License-Identifier: Apache-2.0
//
// Decides how many bytes may be in flight to one peer. A controller sees summed feedback, never
// single packets, and sets a window. Paths are chosen elsewhere (PathSet), so "steer before
// throttle" means that a controller ignores signals that a better path would cure.
//
// Loss inside the budget never slows a sender down: a controller acts on over_budget. lost_packets
// is there only for computing it.
//
// One controller per peer, one thread. A controller is a pure state machine: time is in the sample.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

#include "base/units.h"

namespace spillway::transport {

class CongestionControl;
struct CongestionConfig;
using MakeCongestionControl = std::unique_ptr<CongestionControl> (*)(const CongestionConfig&);

std::unique_ptr<CongestionControl> make_congestion_control(const CongestionConfig& config);

struct CongestionConfig {
  // Makes a peer's controller. The simulator compares others (sim/stacks/rival_controls.h).
  MakeCongestionControl make = &make_congestion_control;
  base::Bytes packet = base::bytes(1500);
  base::Bytes window_initial = base::bytes(256 * 1024);
  base::Bytes window_max = base::bytes(4 * 1024 * 1024);
  base::Duration delay_target = base::microseconds(50);  // queueing, above the base round trip
  // Trimming up to this share is intended (over-send) and no sign of congestion. An endpoint copies
  // it from its ExchangeConfig.
  double trimmed_target = 0.0;
};

// The news in one report of the receiver since the report before, summed over paths.
struct FeedbackSample {
  base::Instant now{};
  base::Duration round_trip{};  // of the latest packet reported
  std::int64_t acked_bytes = 0;
  std::int64_t in_flight_bytes = 0;  // before the report was applied
  std::uint32_t acked_packets = 0;
  std::uint32_t marked_packets = 0;
  std::uint32_t trimmed_packets = 0;
  std::uint32_t unusable_packets = 0;  // trimmed packets that have to be retransmitted
  std::uint32_t lost_packets = 0;
  bool over_budget = false;  // loss exceeds what the messages allow
};

class CongestionControl {
 public:
  virtual ~CongestionControl() = default;
  virtual void on_feedback(const FeedbackSample& sample) = 0;
  // Nothing came back for a whole probe interval.
  virtual void on_silence(base::Instant now) = 0;
  virtual base::Bytes window() const = 0;
};

// How long an answer takes: timestamps that packets carry there and back, the smoothed round trip
// and its variation (RFC 6298's averages), and the waits derived from them.
//
// A timestamp is its sender's clock in microseconds, low bits; it is compared only with that clock,
// as a round trip, which takes far less than half the range (35 minutes). Pure; one thread.

constexpr std::uint32_t stamp_us(base::Instant time) {
  return static_cast<std::uint32_t>(time.since_zero().count() / 1000);
}

// From a timestamp of this clock until now; never negative.
constexpr base::Duration since_stamp(base::Instant now, std::uint32_t stamp) {
  const auto elapsed = static_cast<std::int32_t>(stamp_us(now) - stamp);
  return base::microseconds(elapsed > 0 ? elapsed : 0);
}

class RoundTrip {
 public:
  void add(base::Duration sample) {
    if (smoothed_ == base::Duration()) {
      smoothed_ = sample;
      variation_ = sample / 2;
      return;
    }
    const base::Duration error = sample > smoothed_ ? sample - smoothed_ : smoothed_ - sample;
    variation_ += (error - variation_) / 4;
    smoothed_ += (sample - smoothed_) / 8;
  }

  bool is_known() const { return smoothed_ > base::Duration(); }
  base::Duration usual() const { return smoothed_; }
  // After this long, an answer that has not come is not expected to come.
  base::Duration timeout() const { return smoothed_ + variation_ * 4; }

 private:
  base::Duration smoothed_;
  base::Duration variation_;
};

// Bytes that may be in flight beyond what the network needs, because ranks that share processors
// take turns. While a receiver waits for a processor, arrivals are not reported; while a sender
// waits, reports are not read. A window fit for the network alone would run dry every time, and a
// link would idle for milliseconds.
//
// Packets acknowledged between two transmissions to a peer whose window was full was held up in
// hosts at that time. The most of it, slowly forgotten, is the allowance: a report's worth where
// hosts are quick, what the link carries in a turn where they are not. It cannot feed itself,
// because a turn brings no more than the link carried meanwhile.
//
// A full queue in the network looks the same: everything in flight comes back at once. So packets
// that found no room there limit the allowance, and the limit rises by a share of what is
// acknowledged, far slower than it falls.
//
// Pure; one per peer, one thread.

class HostAllowance {
 public:
  void on_acknowledged(std::int64_t bytes) {
    since_sent_ += bytes;
    if (limit_ != kNoLimit) {
      limit_ += bytes / kRegrowth;
    }
  }
  void on_sent() {
    if (since_sent_ > 0) {
      bytes_ = std::min(limit_, std::max(bytes_ - bytes_ / kForgetting, since_sent_));
      since_sent_ = 0;
    }
  }
  // This share of the packets in flight found no room: a full network has none for the allowance.
  void on_unusable(double share) {
    if (share > 0.0) {
      bytes_ -= static_cast<std::int64_t>(static_cast<double>(bytes_) * share);
      limit_ = bytes_;
      since_sent_ = 0;
    }
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  static constexpr std::int64_t kForgetting = 256;
  static constexpr std::int64_t kRegrowth = 8;
  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

  std::int64_t since_sent_ = 0;
  std::int64_t bytes_ = 0;
  std::int64_t limit_ = kNoLimit;
};

}  // namespace spillway::transport
