// SPDX-License-Identifier: Apache-2.0
//
// The shipped transport on a simulated host. A flow is one message; the host's number is its rank.
//
// Control packets always carry their real bytes, checks included. Data packets do so where asked
// (`real_bytes`: a tensor per flow through packetizer and depacketizer, compared at the end);
// otherwise only their size travels, and a trimmed packet has as many planes left as its length has
// room for. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "packetize/packet_plan.h"
#include "sim/host_stack.h"
#include "sim/packet.h"
#include "sim/stacks/tensor_payload.h"
#include "transport/datagram_port.h"
#include "transport/message.h"
#include "transport/message_table.h"

namespace spillway::sim {

class SpillwayStack;

// Someone who looks over a stack's shoulder: which packets went out and came in, how messages
// ended, which peers were given up. For checks that must not take the stack's own word, and for
// attackers that listen in. An observer changes nothing. Times are those of the host's clock. Calls
// come from within the stack's own, in the order in which things happen.
class StackObserver {
 public:
  virtual ~StackObserver() = default;

  // The stack was told of a flow; `accepted`: its endpoint took it.
  virtual void on_expect(const SpillwayStack& stack, const Flow& flow,
                         const transport::ReceiveOptions& options, bool accepted) = 0;
  virtual void on_start(const SpillwayStack& stack, const Flow& flow,
                        const transport::SendOptions& options, bool accepted) = 0;

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

struct SpillwayStackConfig {
  transport::EndpointConfig endpoint;
  std::uint32_t packet_bytes = 1460;  // UDP payload of a data packet
  std::uint8_t precision = 16;        // bit planes of a whole packet
  std::uint8_t stack = 0;             // number of this job's stack on every host
  std::optional<base::Duration> deadline;
  // With real bytes: how tensors become packets. packet_bytes and precision follow from it.
  bool real_bytes = false;
  packetize::PacketLimits packet_limits;
  packetize::Encoding encoding;
  std::uint64_t job_seed = 0;
  transport::SessionConfig session;
  StackObserver* observer = nullptr;  // must outlive the stack
};

// Data bytes (not headers) that a size-only packet of a flow carries.
std::uint32_t payload_bytes(const SpillwayStackConfig& config);
// Packets that carry `bytes` of a flow.
std::uint32_t packets_of(const SpillwayStackConfig& config, std::uint64_t bytes);

// Which packets of a flow are required, which unimportant: spread over the message at random, the
// same in every run. Empty when all are alike.
std::vector<std::uint8_t> packet_importance(const Flow& flow, std::uint32_t packets);

class SpillwayStack final : public HostStack {
 public:
  // Pool and listener must outlive the stack.
  SpillwayStack(const SpillwayStackConfig& config, PacketPool& pool, FlowListener& listener);

  void expect_flow(const Flow& flow, base::Instant now) override;
  void start_flow(const Flow& flow, base::Instant now) override;
  void on_packet(Packet& packet, base::Instant now) override;
  void on_timeout(base::Instant now) override;
  base::Instant next_timeout() const override;
  bool poll_transmit(base::Instant now, Packet& packet) override;

  void prefetch(unsigned step) const override {
    if (step == 0) {
      __builtin_prefetch(&port_);
    } else {
      endpoint().prefetch(step - 1);
    }
  }

  transport::Endpoint& endpoint() { return port_.endpoint(); }
  const transport::Endpoint& endpoint() const { return port_.endpoint(); }
  const transport::DatagramPort& port() const { return port_; }
  const SpillwayStackConfig& config() const { return config_; }
  HostId host() const { return config_.endpoint.rank; }
  packetize::PacketPlan plan_of(const Flow& flow) const;
  packetize::Job job() const;
  // The worst relative squared error of a received tensor, with real bytes.
  double worst_error() const { return worst_error_; }

 private:
  // A message together with the host at its other end.
  struct KeyHash {
    std::size_t operator()(const transport::MessageKey& key) const {
      return transport::hash_of(key);
    }
  };
  struct Receiving {
    FlowId flow = 0;
    std::unique_ptr<TensorSink> sink;
  };
  struct Sending {
    FlowId flow = 0;
    std::unique_ptr<TensorSource> source;
  };

  void add_peer(HostId host, base::Instant now);
  void take_packet(const Packet& packet, base::Instant now);
  bool fill_next(base::Instant now, Packet& packet);
  void fill_control(const transport::Transmission& transmission, Packet& packet);
  void on_size_only(const Packet& packet, base::Instant now);
  void drain_events(base::Instant now);
  void end_receive(const transport::ReceiveReport& report, base::Instant now);
  void end_send(const transport::SendReport& report, base::Instant now);

  SpillwayStackConfig config_;
  PacketPool& pool_;
  FlowListener& listener_;
  transport::DatagramPort port_;
  transport::Transmission transmission_;
  std::unordered_map<transport::MessageKey, Receiving, KeyHash> receiving_;
  std::unordered_map<transport::MessageKey, Sending, KeyHash> sending_;
  double worst_error_ = 0.0;
};

}  // namespace spillway::sim
