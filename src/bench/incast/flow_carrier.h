// SPDX-License-Identifier: Apache-2.0
//
// Carries the flows of one round between the ranks of a lab, by one protocol. Every rank has one
// and tells it the same flows; it sends those that start at its rank and takes those that end
// there. A round is prepared everywhere before it is started anywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "scenario/workload.h"

namespace spillway::bench {

// How a flow ended at its receiver. Packets are 0 for protocols that do not tell.
struct FlowOutcome {
  std::uint32_t flow = 0;  // its number among the round's
  std::uint32_t packets = 0;
  std::uint32_t delivered = 0;
  std::uint32_t trimmed = 0;
  std::uint32_t allowed_missing = 0;
  std::int64_t nanoseconds = 0;  // from the round's start

  bool within_bound() const { return packets - delivered <= allowed_missing; }
};

class FlowCarrier {
 public:
  virtual ~FlowCarrier() = default;

  virtual void prepare(std::uint32_t round) = 0;
  // At `start`, by the monotonic clock; returns when all flows of this rank have ended.
  virtual std::vector<FlowOutcome> carry(std::uint32_t round, base::Instant start) = 0;
};

// What a rank has to know to make one.
struct CarrierConfig {
  std::uint16_t rank = 0;
  std::vector<scenario::Flow> flows;
};

}  // namespace spillway::bench
