// SPDX-License-Identifier: Apache-2.0
//
// Someone who looks over a Spillway stack's shoulder: which packets went out and came in, how
// messages ended, which peers were given up. For checks that must not take the stack's own word,
// and for attackers that listen in. An observer changes nothing.
//
// Times are those of the host's clock. Calls come from within the stack's own, in the order in
// which things happen; one thread.
#pragma once

#include "base/bytes.h"
#include "base/units.h"
#include "sim/host_stack.h"
#include "transport/message.h"

namespace spillway::sim {

class SpillwayStack;
class TensorSink;

class StackObserver {
 public:
  virtual ~StackObserver() = default;

  // The stack was told of a flow; `accepted`: its endpoint took it.
  virtual void on_expect(const SpillwayStack& stack, const Flow& flow,
                         const transport::ReceiveSpec& spec, bool accepted) = 0;
  virtual void on_start(const SpillwayStack& stack, const Flow& flow,
                        const transport::SendSpec& spec, bool accepted) = 0;

  // `payload` is empty for size-only packets.
  virtual void on_transmit(const SpillwayStack& stack, const Packet& packet, base::ByteView payload,
                           base::Instant now) = 0;
  virtual void before_arrival(const SpillwayStack& stack, const Packet& packet,
                              base::ByteView payload) = 0;
  virtual void after_arrival(const SpillwayStack& stack, const Packet& packet,
                             base::ByteView payload, base::Instant now) = 0;

  // `sink` holds the finished tensor; null where packets carry only their size, or the peer died.
  virtual void on_receive_end(const SpillwayStack& stack, const transport::ReceiveReport& report,
                              const TensorSink* sink) = 0;
  virtual void on_send_end(const SpillwayStack& stack, const transport::SendReport& report) = 0;
  virtual void on_peer_dead(const SpillwayStack& stack, HostId peer, base::Instant now) = 0;
};

}  // namespace spillway::sim
