// SPDX-License-Identifier: Apache-2.0
//
// The real transport on a simulated host. A flow is one message; the host's number is its rank.
//
// Control packets always carry real bytes, including checks. With `real_bytes` data packets do so
// as well: each flow carries a tensor through packetizer and depacketizer, which is compared at the
// end. Otherwise only their size travels, and a trimmed packet keeps as many planes as fit its
// length. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "collective/tolerant/payload.h"
#include "packetize/depacketizer.h"
#include "packetize/packet_plan.h"
#include "sim/host.h"
#include "sim/packet.h"
#include "transport/datagram_port.h"
#include "transport/message.h"
#include "transport/message_table.h"

namespace spillway::sim {

// Real bytes for simulated messages: a tensor passes through the real packetizer on one host and
// the real depacketizer on another, so that a simulation can compare both ends value by value.

// A tensor drawn from (job seed, message): both ends of a simulation can compute it.
std::vector<float> sample_tensor(std::size_t length, const packetize::Job& job,
                                 const wire::MessageId& message);

class TensorSource final : public transport::PayloadSource {
 public:
  TensorSource(const packetize::PacketPlan& plan, const packetize::Job& job,
               const wire::MessageId& message)
      : coded_(plan) {
    coded_.encode(sample_tensor(plan.layout().tensor_length(), job, message), job, message);
  }

  std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                    base::MutableByteView out) override {
    return coded_.write(stamp, auth, out);
  }

 private:
  collective::PlaneSource coded_;
};

class TensorSink final : public transport::PayloadSink {
 public:
  TensorSink(const packetize::PacketPlan& plan, const packetize::Job& job,
             const wire::MessageId& message);

  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override;

  // Relative squared error of the received tensor; call once, at the end of the message.
  double finish();
  std::span<const float> tensor() const;
  // True if nothing was written beside the tensor.
  bool guards_intact() const;

 private:
  static constexpr std::size_t kGuardValues = 64;  // before the tensor and after it

  std::vector<float> sent_;
  std::vector<float> guarded_;
  packetize::Depacketizer depacketizer_;
};

class SpillwayStack;

// Observes a stack: packets sent and received, ends of messages, peers given up. For checks that
// must not rely on the stack's own reports, and for attackers that listen. An observer must not
// change anything. Times are by the host's clock. Calls come from within the stack's calls, in the
// order of events.
class StackObserver {
 public:
  virtual ~StackObserver() = default;

  // The stack got a flow; `accepted` is true if its endpoint took it.
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

  // `sink` holds the finished tensor; null for size-only packets or if the peer died.
  virtual void on_receive_end(const SpillwayStack& stack, const transport::ReceiveReport& report,
                              const TensorSink* sink) = 0;
  virtual void on_send_end(const SpillwayStack& stack, const transport::SendReport& report) = 0;
  virtual void on_peer_dead(const SpillwayStack& stack, HostId peer, base::Instant now) = 0;
};

struct SpillwayStackConfig {
  transport::EndpointConfig endpoint;
  std::uint32_t packet_bytes = 1460;  // UDP payload of a data packet
  std::uint8_t precision = 16;        // bit planes of an untrimmed packet
  std::uint8_t stack = 0;             // index of this job's stack on every host
  std::optional<base::Duration> deadline;
  // With real bytes: how tensors are packetized. packet_bytes and precision follow from it.
  bool real_bytes = false;
  packetize::PacketLimits packet_limits;
  packetize::Encoding encoding;
  std::uint64_t job_seed = 0;
  transport::SessionConfig session;
  StackObserver* observer = nullptr;  // must outlive the stack
};

// Data bytes (without headers) of a size-only packet of a flow.
std::uint32_t payload_bytes(const SpillwayStackConfig& config);
// Number of packets that carry `bytes` of a flow.
std::uint32_t packets_of(const SpillwayStackConfig& config, std::uint64_t bytes);

// The importance of each packet of a flow: required and unimportant ones are spread at random, the
// same in every run. Empty if all packets are alike.
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
  // Hashes a message with the host at its other end.
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
