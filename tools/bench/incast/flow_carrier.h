// SPDX-License-Identifier: Apache-2.0
//
// Carries the flows of one round between the ranks of a lab, over one protocol. Every rank has one
// and passes it the same flows. It sends those that start at its rank and receives those that end
// there. A round must be prepared at every rank before it is started at any.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "sim/scenario/workload.h"

namespace spillway::bench {

// How a flow ended at its receiver. Packet counts are 0 for protocols without them.
struct FlowOutcome {
  std::uint32_t flow = 0;  // index among the round's flows
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
  // Starts at `start` on the monotonic clock; returns when all flows of this rank have ended.
  virtual std::vector<FlowOutcome> carry(std::uint32_t round, base::Instant start) = 0;
};

// What a carrier needs to know.
struct CarrierConfig {
  std::uint16_t rank = 0;
  std::vector<scenario::Flow> flows;
};

}  // namespace spillway::bench
