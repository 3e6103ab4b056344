// SPDX-License-Identifier: Apache-2.0
//
// Flows as Spillway messages over real sockets, with the tuning of the scenario's job: the same
// settings as in the simulator's stacks.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/transport_driver.h"
#include "sim/scenario/scenario.h"
#include "tools/bench/incast/flow_carrier.h"
#include "tools/bench/plane_payload.h"

namespace spillway::bench {

struct SpillwayCarrierOptions {
  scenario::SpillwayOptions spillway;
  base::BitRate link_rate;
  std::uint32_t trim_bytes = 0;
  net::SocketAddress listen;
  std::vector<net::SocketAddress> peers;  // by rank
};

class SpillwayCarrier final : public FlowCarrier, private net::DriverListener {
 public:
  SpillwayCarrier(const CarrierConfig& config, const SpillwayCarrierOptions& options);
  ~SpillwayCarrier() override;

  void prepare(std::uint32_t round) override;
  std::vector<FlowOutcome> carry(std::uint32_t round, base::Instant start) override;

 private:
  // One end's state of a flow.
  struct Leg {
    scenario::Flow flow;
    std::uint32_t number = 0;
    std::unique_ptr<packetize::PacketPlan> plan;
    std::unique_ptr<PlaneSource> source;
    std::unique_ptr<PlaneSink> sink;
  };

  void on_event(const transport::Event& event, transport::Endpoint& endpoint,
                base::Instant now) override;
  Leg make_leg(const scenario::Flow& flow, std::uint32_t number, unsigned datagram_bytes);
  wire::MessageId id_of(const Leg& leg, std::uint32_t round) const;
  transport::ReceiveOptions receive_options(const Leg& leg, std::uint32_t round) const;
  transport::SendOptions send_options(const Leg& leg, std::uint32_t round) const;
  void note(base::Status status);

  CarrierConfig config_;
  SpillwayCarrierOptions options_;
  std::vector<Leg> outgoing_;
  std::vector<Leg> incoming_;
  std::unique_ptr<net::TransportDriver> driver_;

  std::mutex mutex_;  // guards all below: the driver's thread writes it
  std::condition_variable changed_;
  base::Instant start_;
  std::size_t open_ = 0;  // unfinished flows of the round at this rank
  std::vector<FlowOutcome> outcomes_;
  std::string problem_;
};

}  // namespace spillway::bench
