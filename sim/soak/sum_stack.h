// SPDX-License-Identifier: Apache-2.0
//
// The stacks of worlds of sums. SumStack is a rank's endpoint with its sums and sends real packets.
// SumForger sends parts, results and requests of sums; it knows everything about them except the
// key. One thread.
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
    std::uint8_t stack = 0;   // index of the job's stack on every host
    HostId first_host = 0;    // host of rank 0
    std::uint16_t ranks = 0;  // of the job
  };
  using Listener = std::function<void(const transport::SumReport& report)>;

  // The pool must outlive the stack.
  SumStack(const Config& config, PacketPool& pool, Listener on_report);

  // The caller must wake the host afterwards.
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
  // World and pool must outlive the stack.
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

// The signature of all packets of a job's operation; known to all in the world.
std::uint64_t sum_signature(std::uint16_t job, std::uint64_t operation);

}  // namespace spillway::sim
