// SPDX-License-Identifier: Apache-2.0
//
// TCP on a simulated host: the senders and receivers (sender.h, receiver.h) of its flows behind the
// HostStack interface. A flow is one connection that is open from the start.
//
// The card gets ACKs first, then segments of the flows in turn; with priority_by_flow, of the most
// urgent flows that may send. All packets of a flow carry one label, so per-flow ECMP keeps them on
// one path. DCTCP's packets, including ACKs, are ECN-capable, as in Linux.
//
// A flow ends when its receiver has every segment. The stack has the same index on both hosts. One
// thread; deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <unordered_map>
#include <vector>

#include "sim/host_stack.h"
#include "sim/scenario/tcp_config.h"
#include "sim/tcp/receiver.h"
#include "sim/tcp/sender.h"

namespace spillway::sim {

class TcpStack final : public HostStack {
 public:
  TcpStack(const scenario::TcpConfig& config, std::uint8_t stack_index, FlowListener& listener);

  void expect_flow(const Flow& flow, base::Instant now) override;
  void start_flow(const Flow& flow, base::Instant now) override;
  void on_packet(Packet& packet, base::Instant now) override;
  void on_timeout(base::Instant now) override;
  base::Instant next_timeout() const override;
  bool poll_transmit(base::Instant now, Packet& packet) override;

  // True for a flow that started here and is not fully acknowledged.
  bool is_sending(FlowId flow) const;
  // Frees the flow's slot; the caller must not use the flow again. Its sender, here or at the other
  // host, must have finished.
  void forget_flow(FlowId flow);

  // Totals of all flows so far.
  TcpCounters counters() const;

 private:
  struct Outgoing {
    Flow flow;
    std::uint32_t label = 0;
    std::unique_ptr<TcpSender> sender;  // null once everything is acknowledged
    base::Instant timer;                // time of its earliest entry in timers_
    bool is_ready = false;              // has an entry in ready_
  };
  struct Incoming {
    Flow flow;
    std::uint32_t label = 0;
    TcpReceiver receiver;
    bool ended = false;
    bool timer_is_set = false;
  };
  struct PendingAck {
    std::uint32_t incoming = 0;
    TcpSegment segment;
  };
  struct Timer {
    base::Instant at;
    std::uint32_t index = 0;  // in incoming_ or outgoing_
    bool is_incoming = false;
    friend auto operator<=>(const Timer&, const Timer&) = default;
  };
  using TimerQueue = std::priority_queue<Timer, std::vector<Timer>, std::greater<>>;

  std::uint32_t segments_of(const Flow& flow) const;
  std::uint8_t dscp_of(const Flow& flow) const;
  std::uint8_t queue_of(const Flow& flow) const;
  void on_ack(const TcpSegment& ack, base::Instant now);
  void on_data(const Packet& packet, base::Instant now);
  void on_timer(const Timer& timer, base::Instant now);
  void refresh(std::uint32_t index);  // updates the outgoing flow's entries in ready_ and timers_
  void retire(Outgoing& outgoing);
  void fill_common(const Flow& flow, std::uint32_t label, Packet& packet) const;
  void fill_ack(const PendingAck& ack, Packet& packet) const;
  bool send_segment(std::uint32_t index, base::Instant now, Packet& packet);

  scenario::TcpConfig config_;
  std::uint8_t stack_index_;
  FlowListener& listener_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::vector<std::uint32_t> free_outgoing_;
  std::vector<std::uint32_t> free_incoming_;
  std::unordered_map<FlowId, std::uint32_t> outgoing_of_flow_;
  std::unordered_map<FlowId, std::uint32_t> incoming_of_flow_;
  std::deque<PendingAck> acks_;
  std::array<std::deque<std::uint32_t>, SPILLWAY_PRIORITIES> ready_;
  TimerQueue timers_;
  TcpCounters counters_;  // of finished senders, and marks
};

}  // namespace spillway::sim
