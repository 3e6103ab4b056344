// SPDX-License-Identifier: Apache-2.0
//
// A simulated host, and the interface of the protocol stacks on it. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/units.h"
#include "sim/event_queue.h"
#include "sim/link.h"
#include "sim/packet.h"
#include "sim/scenario/workload.h"
#include "transport/endpoint.h"

namespace spillway::sim {

// ------------------------------------------------------------------ stacks

// The interface of a protocol stack on a simulated host. The host calls it with packets and
// timeouts, and polls it for packets when the NIC is free. A host may run several stacks (jobs,
// tenants); its NIC serves them in turn.
//
// A flow is a number of bytes from one host to another. A stack reports the end of each flow once
// to the FlowListener.

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

  // Hints that another call follows: the stack may fetch its memory, in steps 0 to 2. A step may
  // read what the previous one fetched; step 0 may read the stack's first cache line.
  virtual void prefetch(unsigned /*step*/) const {}
};

// ------------------------------------------------------------------ the host

// A simulated host: its stacks, its clock and its NIC. The NIC has no queue: whenever it is free,
// the host polls its stacks for a packet, in turn, and again after every event of a stack.
//
// One timer serves the earliest timeout of all stacks. It only ever moves to an earlier time; if it
// fires too soon, the host sets it again.
//
// Stacks see the host's own clock (HostClock), everything else the network's. One thread.

// A host's own clock: it may run slightly faster or slower than the network's, and ahead of it.
// Both conversions are exact in whole nanoseconds. network_time(t) is the first instant at which
// the host's clock shows at least t, so a timer never fires early by the host's own clock.
class HostClock {
 public:
  HostClock() = default;
  // The clock gains `skew_ppb` nanoseconds per second, up to 10% either way; `ahead` is not
  // negative.
  HostClock(std::int64_t skew_ppb, base::Duration ahead) : skew_ppb_(skew_ppb), ahead_(ahead) {}

  base::Instant host_time(base::Instant network) const {
    return skew_ppb_ == 0 ? network + ahead_ : network + ahead_ + drift(network.since_zero());
  }

  base::Instant network_time(base::Instant host) const {
    if (host == transport::kNever || (skew_ppb_ == 0 && ahead_ == base::Duration())) {
      return host;
    }
    return search(host);
  }

 private:
  static constexpr std::int64_t kBillion = 1'000'000'000;

  base::Duration drift(base::Duration elapsed) const {
    const __int128 product = static_cast<__int128>(elapsed.count()) * skew_ppb_;
    return base::nanoseconds(static_cast<std::int64_t>(product / kBillion));
  }

  base::Instant search(base::Instant host) const {
    const __int128 shown = (host - ahead_).since_zero().count();
    base::Instant guess(
        base::nanoseconds(static_cast<std::int64_t>(shown * kBillion / (kBillion + skew_ppb_))));
    constexpr base::Duration kStep = base::nanoseconds(1);
    while (host_time(guess) >= host) {
      guess = guess - kStep;
    }
    while (host_time(guess) < host) {
      guess = guess + kStep;
    }
    return guess;
  }

  std::int64_t skew_ppb_ = 0;
  base::Duration ahead_;
};

struct HostCounters {
  std::uint64_t delivered = 0;       // packets handed to stacks
  std::uint64_t delivered_data = 0;  // without control packets and acknowledgements
  std::uint64_t discarded = 0;       // packets that arrived after the host died
  std::uint64_t received_bytes = 0;  // of frames that came over the link
};

class Host final : public Actor {
 public:
  // An arriving packet's event is its PacketIndex alone.
  Host(HostId id, EventQueue& events, PacketPool& pool, const LinkEnd& link);

  std::uint8_t add_stack(std::unique_ptr<HostStack> stack);
  HostStack& stack(std::uint8_t index) { return *stacks_[index].stack; }
  std::size_t stack_count() const { return stacks_.size(); }

  base::Instant host_time(base::Instant now) const { return clock_.host_time(now); }
  void set_clock(const HostClock& clock) { clock_ = clock; }
  void die() { dead_ = true; }
  // Has the stacks polled for timeouts and packets, at this instant but after the current event.
  void wake(base::Instant now);
  void on_event(std::uint64_t argument, base::Instant now) override;
  // Fetches the packet and the first stack, then the memory that this stack asks for.
  void prefetch(std::uint64_t argument, unsigned step) const override;

  Transmitter& transmitter() { return transmitter_; }
  const Transmitter& transmitter() const { return transmitter_; }
  const HostCounters& counters() const { return counters_; }

 private:
  enum class EventKind : std::uint32_t { kArrival, kNicFree, kTimer, kWake };

  struct RunningStack {
    std::unique_ptr<HostStack> stack;
    base::Instant timeout = transport::kNever;  // by the network's clock
  };

  static constexpr std::uint64_t event(EventKind kind, std::uint32_t value = 0) {
    return (std::uint64_t{static_cast<std::uint32_t>(kind)} << 32) | value;
  }

  void receive(PacketIndex index, base::Instant now);
  void run_timeouts(base::Instant now);
  void poll_stacks(base::Instant now);
  void use_nic(base::Instant now);
  bool send_from(RunningStack& running, base::Instant now);
  void note_timeout(RunningStack& running) {
    running.timeout = clock_.network_time(running.stack->next_timeout());
  }
  void set_timer(base::Instant earliest);

  HostId id_;
  bool dead_ = false;
  bool wake_pending_ = false;
  std::uint32_t turn_ = 0;
  std::uint32_t timer_generation_ = 0;
  base::Instant timer_at_ = transport::kNever;
  EventQueue* events_;
  PacketPool* pool_;
  const HostStack* first_stack_ = nullptr;  // front of stacks_
  HostClock clock_;
  std::vector<RunningStack> stacks_;
  Transmitter transmitter_;
  HostCounters counters_;
};

}  // namespace spillway::sim
