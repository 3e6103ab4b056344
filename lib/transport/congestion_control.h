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
  std::uint32_t spoilt_packets = 0;  // trimmed packets that have to be retransmitted
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

std::unique_ptr<CongestionControl> make_congestion_control(const CongestionConfig& config);

}  // namespace spillway::transport
