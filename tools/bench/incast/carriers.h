// SPDX-License-Identifier: Apache-2.0
//
// Carriers of flows between the ranks of a lab: over the kernel's TCP, and as Spillway messages.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/units.h"
#include "net/address.h"
#include "net/system_call.h"
#include "net/transport_driver.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/workload.h"
#include "tools/bench/loopback/process_pair.h"

namespace spillway::bench {

// ------------------------------------------------------------------ the interface

// Carries the flows of one round between the ranks of a lab, over one protocol. Every rank has one
// and passes it the same flows. It sends those that start at its rank and receives those that end
// there. A round must be prepared at every rank before it is started at any.

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

// The parameters of a carrier.
struct CarrierConfig {
  std::uint16_t rank = 0;
  std::vector<scenario::Flow> flows;
};

// ------------------------------------------------------------------ TCP

// Flows over the kernel's TCP: one connection per flow, opened before the first round, as in Gloo
// and MPI.

struct TcpCarrierOptions {
  std::string congestion_control;         // "cubic", "bbr"; empty: the kernel's default
  std::vector<net::SocketAddress> peers;  // by rank; a rank listens at its own
};

class TcpCarrier final : public FlowCarrier {
 public:
  TcpCarrier(const CarrierConfig& config, const TcpCarrierOptions& options);

  void prepare(std::uint32_t round) override;
  std::vector<FlowOutcome> carry(std::uint32_t round, base::Instant start) override;

 private:
  struct Leg {
    scenario::Flow flow;
    std::uint32_t number = 0;
    net::UniqueFd stream;
  };

  void connect_to(const net::SocketAddress& address, const std::string& congestion_control,
                  Leg& leg);
  void accept_all(const net::UniqueFd& listener);

  CarrierConfig config_;
  std::vector<Leg> outgoing_;
  std::vector<Leg> incoming_;
};

// ------------------------------------------------------------------ Spillway

// Flows as Spillway messages over real sockets, with the tuning of the scenario's job: the same
// settings as in the simulator's stacks.

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
