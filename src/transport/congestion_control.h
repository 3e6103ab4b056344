// SPDX-License-Identifier: Apache-2.0
//
// How much may be on its way to one peer. A controller sees what came back (never single packets)
// and sets a window; the paths a packet takes are chosen elsewhere, so "steer before throttle" is
// a controller that ignores signals a better path would cure.
//
// Loss inside the budget never slows a sender down: a controller acts on over_budget, not on
// lost_packets, which is there for whoever works out the former.
//
// One controller per peer, one thread. A controller is a pure state machine: time is in the sample.
#pragma once

#include <cstdint>
#include <memory>

#include "base/units.h"

namespace spillway::transport {

enum class ControllerKind : std::uint8_t { kSpillway, kDctcp, kTimely };

struct CongestionConfig {
  ControllerKind kind = ControllerKind::kSpillway;
  base::Bytes packet = base::bytes(1500);
  base::Bytes window_initial = base::bytes(256 * 1024);
  base::Bytes window_max = base::bytes(4 * 1024 * 1024);
  base::Duration delay_target = base::microseconds(50);  // of queueing, above the base round trip
  // Trims up to this share are wanted (over-send) and no sign of congestion. An endpoint sets it
  // to its ExchangeConfig's.
  double trimmed_target = 0.0;
};

// What one report of the receiver said, summed over paths, since the one before.
struct FeedbackSample {
  base::Instant now{};
  base::Duration round_trip{};  // of the latest packet it saw
  std::int64_t acked_bytes = 0;
  std::int64_t in_flight_bytes = 0;  // before it came, what it told of included
  std::uint32_t acked_packets = 0;
  std::uint32_t marked_packets = 0;
  std::uint32_t trimmed_packets = 0;
  std::uint32_t spoilt_packets = 0;  // of these, ones that have to be sent again
  std::uint32_t lost_packets = 0;
  bool over_budget = false;  // more is being lost than the messages allow
};

class CongestionControl {
 public:
  virtual ~CongestionControl() = default;
  virtual void on_feedback(const FeedbackSample& sample) = 0;
  // Nothing came back for a whole probe interval.
  virtual void on_silence(base::Instant now) = 0;
  virtual base::Bytes window() const = 0;
};

std::unique_ptr<CongestionControl> make_congestion_control(const CongestionConfig& config);

}  // namespace spillway::transport
