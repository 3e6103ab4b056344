// SPDX-License-Identifier: Apache-2.0
//
// A real host as the emulated network sees it. What its port read waits here until the host's
// emulated link is free; what the network delivers goes to the port. It stands for the host's card:
// a frame that would not fit into kIngressBytes is dropped and counted.
//
// Frames leave in the order of push(), and never before they arrived. One thread.
#pragma once

#include <cstdint>
#include <deque>

#include "sim/host_stack.h"
#include "switch/fabric/port.h"

namespace spillway::fabric {

inline constexpr std::uint64_t kIngressBytes = 4 << 20;

class PortStack final : public sim::HostStack {
 public:
  // `zero`: start of the network's time, by the monotonic clock. All arguments must outlive the
  // stack.
  PortStack(sim::PacketPool& pool, Port& port, const base::Instant& zero)
      : pool_(pool), port_(port), zero_(zero) {}

  // `at` is by the network's clock and not before its current time. Takes ownership of the packet.
  void push(sim::PacketIndex index, base::Instant at);
  std::uint64_t dropped() const { return dropped_; }

  void expect_flow(const scenario::Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const scenario::Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_packet(sim::Packet& packet, base::Instant now) override;
  void on_timeout(base::Instant now) override { seen_ = now; }
  base::Instant next_timeout() const override;
  bool poll_transmit(base::Instant now, sim::Packet& packet) override;

 private:
  struct Waiting {
    base::Instant at;
    sim::PacketIndex packet = sim::kNone;
  };

  sim::PacketPool& pool_;
  Port& port_;
  const base::Instant& zero_;
  std::deque<Waiting> waiting_;
  std::uint64_t waiting_bytes_ = 0;
  std::uint64_t dropped_ = 0;
  base::Instant seen_{base::nanoseconds(-1)};
};

}  // namespace spillway::fabric
