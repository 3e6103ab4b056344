// SPDX-License-Identifier: Apache-2.0
//
// The real collectives on a simulated host: an engine over an endpoint, with real packets. Ranks
// are numbered host by host; a parameter server serves from the start. Adding takes no time.
//
// The caller submits operations and gets their completions; flows are not used here.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "collective/engine.h"
#include "sim/host.h"
#include "sim/packet.h"
#include "transport/datagram_port.h"

namespace spillway::sim {

struct CollectiveStackConfig {
  collective::EngineConfig engine;
  transport::EndpointConfig endpoint;
  transport::SessionConfig session;
  std::uint8_t stack = 0;            // index of the stack of this job's first rank on every host
  std::uint16_t ranks_per_host = 1;  // their stacks are side by side
};

class CollectiveStack final : public HostStack,
                              private collective::EngineListener,
                              private collective::ComputePool {
 public:
  using Completion = std::function<void(std::uint64_t token, const base::Status& status,
                                        const collective::OperationReport& report)>;

  // The pool must outlive the stack. `on_complete` may submit.
  static base::Result<std::unique_ptr<CollectiveStack>> make(const CollectiveStackConfig& config,
                                                             PacketPool& pool,
                                                             Completion on_complete);

  // Checks the operation and hands it to the engine. The caller must then wake the host
  // (Network::wake()), so that its card polls for packets.
  base::Status submit(const collective::Operation& operation, std::uint64_t token,
                      base::Instant now);
  void fail(const base::Status& cause, base::Instant now);
  // Leaves as a communicator does that closes after its work.
  void leave();

  void expect_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_packet(Packet& packet, base::Instant now) override;
  void on_timeout(base::Instant now) override;
  base::Instant next_timeout() const override;
  bool poll_transmit(base::Instant now, Packet& packet) override;

  const collective::Engine& engine() const { return *engine_; }
  const transport::Endpoint& endpoint() const { return port_.endpoint(); }
  const transport::DatagramPort& port() const { return port_; }

 private:
  CollectiveStack(const CollectiveStackConfig& config, PacketPool& pool, Completion on_complete);

  void submit(collective::ComputeJob& job) override { jobs_.push_back(&job); }
  void on_complete(std::uint64_t token, const base::Status& status,
                   const collective::OperationReport& report) override {
    on_complete_(token, status, report);
  }
  // Runs jobs and dispatches events until there are none.
  void settle(base::Instant now);

  CollectiveStackConfig config_;
  PacketPool& pool_;
  Completion on_complete_;
  transport::DatagramPort port_;
  std::unique_ptr<collective::Engine> engine_;
  std::deque<collective::ComputeJob*> jobs_;
  bool is_settling_ = false;
  std::array<std::uint8_t, SPILLWAY_MAX_PACKET> buffer_;
};

}  // namespace spillway::sim
