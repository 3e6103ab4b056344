// SPDX-License-Identifier: Apache-2.0
//
// What runs on hosts in worlds of sums: SumStack, a rank's endpoint with the sums it takes part in,
// every byte of its packets as shipped; and SumForger, who sends parts, results and requests of
// sums that he knows all about but has no key for. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/random.h"
#include "sim/host_stack.h"
#include "sim/soak/sum_world.h"
#include "transport/datagram_port.h"

namespace spillway::sim {

class SumStack final : public HostStack {
 public:
  struct Config {
    transport::EndpointConfig endpoint;
    transport::SessionConfig session;
    std::uint8_t stack = 0;   // number of its job's stack on every host
    HostId first_host = 0;    // rank 0's
    std::uint16_t ranks = 0;  // of the job
  };
  using Listener = std::function<void(const transport::SumReport& report)>;

  // The pool outlives the stack.
  SumStack(const Config& config, PacketPool& pool, Listener on_report);

  // Wake the host afterwards.
  base::Status begin(const transport::SumOptions& options, base::Instant now);
  void retire(std::uint64_t operation) { port_.endpoint().retire(operation); }

  void expect_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_packet(Packet& packet, base::Instant now) override;
  void on_timeout(base::Instant now) override;
  base::Instant next_timeout() const override { return port_.endpoint().next_timeout(); }
  bool poll_transmit(base::Instant now, Packet& packet) override;

  const transport::DatagramPort& port() const { return port_; }

 private:
  void tell();

  Config config_;
  PacketPool& pool_;
  Listener on_report_;
  transport::DatagramPort port_;
  std::array<std::uint8_t, SPILLWAY_MAX_PACKET> buffer_;
};

class SumForger final : public HostStack {
 public:
  // World and pool outlive the stack.
  SumForger(const SumWorld& world, PacketPool& pool);

  void expect_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_packet(Packet& /*packet*/, base::Instant /*now*/) override {}
  void on_timeout(base::Instant /*now*/) override {}
  base::Instant next_timeout() const override { return left_ == 0 ? transport::kNever : next_; }
  bool poll_transmit(base::Instant now, Packet& packet) override;

 private:
  const SumWorld& world_;
  PacketPool& pool_;
  std::uint32_t left_;
  base::Instant next_;
  base::RandomSequence random_;
};

// Of all packets of an operation of a job; everybody in the world knows it.
std::uint64_t sum_signature(std::uint16_t job, std::uint64_t operation);

}  // namespace spillway::sim
