// SPDX-License-Identifier: Apache-2.0
//
// The interface of a protocol stack on a simulated host. It takes packets and time; the host polls
// it for packets when the network card is free. A host may run several stacks (jobs, background
// tenants); its card serves them in turn.
//
// A flow is a number of bytes from one host to another. A stack reports the end of each flow once
// to the FlowListener.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "sim/packet.h"
#include "sim/scenario/workload.h"

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
  // The flow's bytes have arrived at its destination, or it failed there.
  virtual void on_flow_end(const FlowResult& result, base::Instant now) = 0;
};

class HostStack {
 public:
  virtual ~HostStack() = default;

  // Both ends of a flow get a call; `expect_flow` comes first.
  virtual void expect_flow(const Flow& flow, base::Instant now) = 0;
  virtual void start_flow(const Flow& flow, base::Instant now) = 0;

  virtual void on_packet(Packet& packet, base::Instant now) = 0;
  virtual void on_timeout(base::Instant now) = 0;
  virtual base::Instant next_timeout() const = 0;  // transport::kNever for none
  // Fills in `packet` (fresh from the pool) with the next one to send; returns false if there is
  // none. The network fills in `from`, sent_bytes and next.
  virtual bool poll_transmit(base::Instant now, Packet& packet) = 0;

  // Another call is about to come: the stack may fetch its memory, in steps 0 to 2. A step may read
  // what the previous one fetched; step 0 may read the stack's first cache line.
  virtual void prefetch(unsigned /*step*/) const {}
};

}  // namespace spillway::sim
