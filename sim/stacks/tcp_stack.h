// SPDX-License-Identifier: Apache-2.0
//
// A simulated host that speaks TCP (TcpStack): senders (tcp_sender.h), receivers (TcpReceiver) and
// the order in which flows take turns.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <unordered_map>
#include <vector>

#include "sim/host.h"
#include "sim/packet.h"
#include "sim/scenario/job.h"
#include "sim/stacks/tcp_sender.h"

namespace spillway::sim {

// The receiving end of one TCP flow: which segments have arrived, and when to acknowledge them.
//
// In an ACK `acknowledged` is cumulative. `sequence` to `selective` is the run of segments around
// the one that caused it: a selective block, limited to kRunReach segments on either side.
// timestamp_ns echoes the oldest segment that the ACK answers.
//
// Every segments_per_ack-th segment is acknowledged. Some cause an ACK at once, whatever the count:
// segments out of order, repeated segments, one that fills a gap, the last one and, for DCTCP, a
// change of mark. Data that arrived before the change is then acknowledged with its own mark (RFC
// 8257, section 3.2).

class TcpReceiver {
 public:
  static constexpr std::uint32_t kRunReach = 16;

  TcpReceiver(const scenario::TcpConfig& config, std::uint32_t segments);

  // The ACKs that a segment causes, oldest first.
  struct Acks {
    std::array<TcpSegment, 2> ack;
    unsigned count = 0;
  };
  Acks on_segment(const TcpSegment& segment, bool marked);

  // True if an ACK is being delayed; the caller runs the delay timer.
  bool has_held_ack() const { return held_ > 0; }
  TcpSegment release_held_ack();

  bool complete() const { return next_ == segments_; }

 private:
  bool has(std::uint32_t sequence) const;
  void take(std::uint32_t sequence);
  TcpSegment make_ack(std::uint32_t cause) const;

  std::uint32_t segments_;
  unsigned segments_per_ack_;
  std::uint32_t next_ = 0;           // all segments below have arrived
  std::vector<std::uint64_t> came_;  // a bit per segment; empty once all have arrived
  unsigned held_ = 0;                // segments not acknowledged yet
  std::uint32_t held_cause_ = 0;
  bool marked_ = false;  // mark of the latest segment
  std::uint32_t flow_ = 0;
  std::int64_t oldest_timestamp_ns_ = 0;  // of the held segments
};

// TCP on a simulated host: the senders and receivers (sender.h, receiver.h) of its flows behind the
// HostStack interface. A flow is one connection that is open from the start.
//
// The card gets ACKs first, then segments of the flows in turn; with priority_by_flow, of the most
// urgent flows that may send. All packets of a flow carry one label, so per-flow ECMP keeps them on
// one path. DCTCP's packets, including ACKs, are ECN-capable, as in Linux.
//
// A flow ends when its receiver has every segment. The stack has the same index on both hosts. One
// thread; deterministic.

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
