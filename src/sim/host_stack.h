// SPDX-License-Identifier: Apache-2.0
//
// What runs on a simulated host: a protocol stack that takes packets and time, and is asked for
// packets when the host's network card is free. A host may run several (jobs, background tenants);
// its card serves them in turn.
//
// Flows are what experiments talk about: so many bytes from one host to another. A stack that
// carries a flow tells the FlowListener once when it ended.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "scenario/workload.h"
#include "sim/packet.h"

namespace spillway::sim {

using scenario::Flow;
using scenario::FlowId;

enum class FlowEnd : std::uint8_t { kDone, kDeadline, kPeerDead, kCancelled };

struct FlowResult {
  FlowId id = 0;
  FlowEnd end = FlowEnd::kDone;
  std::uint32_t packets = 0;
  std::uint32_t delivered = 0;
  std::uint32_t trimmed = 0;
  std::uint32_t important_expected = 0;
  std::uint32_t important_delivered = 0;
};

class FlowListener {
 public:
  virtual ~FlowListener() = default;
  // The flow's bytes are at its destination, or it failed there.
  virtual void on_flow_end(const FlowResult& result, base::Instant now) = 0;
};

class HostStack {
 public:
  virtual ~HostStack() = default;

  // Both ends of a flow are told of it; `expect_flow` first.
  virtual void expect_flow(const Flow& flow, base::Instant now) = 0;
  virtual void start_flow(const Flow& flow, base::Instant now) = 0;

  virtual void on_packet(Packet& packet, base::Instant now) = 0;
  virtual void on_timeout(base::Instant now) = 0;
  virtual base::Instant next_timeout() const = 0;  // transport::kNever for none
  // Fills in `packet` (fresh from the pool) with the next one to send, or says there is none. The
  // network fills in `from`, sent_bytes and next.
  virtual bool poll_transmit(base::Instant now, Packet& packet) = 0;

  // Another call is coming soon: a stack of which there are many may have its memory fetched, in
  // steps 0 to 2. What one step fetched, the next may look at; the stack's beginning is there.
  virtual void prefetch(unsigned /*step*/) const {}
};

}  // namespace spillway::sim
