// SPDX-License-Identifier: Apache-2.0
#include "sim/stacks/tcp_stack.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "transport/endpoint.h"
#include "wire/packet.h"

namespace spillway::sim {

// ------------------------------------------------------------------ receiver

TcpReceiver::TcpReceiver(const scenario::TcpConfig& config, std::uint32_t segments)
    : segments_(segments),
      segments_per_ack_(config.segments_per_ack),
      came_((std::size_t{segments} + 63) / 64) {}

bool TcpReceiver::has(std::uint32_t sequence) const {
  return sequence < next_ || ((came_[sequence / 64] >> (sequence % 64)) & 1) != 0;
}

void TcpReceiver::take(std::uint32_t sequence) {
  came_[sequence / 64] |= std::uint64_t{1} << (sequence % 64);
  while (next_ < segments_ && ((came_[next_ / 64] >> (next_ % 64)) & 1) != 0) {
    ++next_;
  }
  if (complete()) {
    came_ = {};
  }
}

TcpReceiver::Acks TcpReceiver::on_segment(const TcpSegment& segment, bool marked) {
  SPILLWAY_CHECK(segment.sequence < segments_);
  Acks acks;
  flow_ = segment.flow;
  if (held_ > 0 && marked != marked_) {
    acks.ack[acks.count++] = release_held_ack();
  }
  marked_ = marked;
  if (held_ == 0) {
    oldest_timestamp_ns_ = segment.timestamp_ns;
  }
  const bool is_new = !has(segment.sequence);
  const bool in_order = segment.sequence == next_;
  if (is_new) {
    take(segment.sequence);
  }
  const bool filled_gap = next_ > segment.sequence + 1;
  ++held_;
  held_cause_ = segment.sequence;
  if (!in_order || filled_gap || complete() || held_ >= segments_per_ack_) {
    acks.ack[acks.count++] = release_held_ack();
  }
  return acks;
}

TcpSegment TcpReceiver::release_held_ack() {
  held_ = 0;
  return make_ack(held_cause_);
}

TcpSegment TcpReceiver::make_ack(std::uint32_t cause) const {
  const std::uint32_t lowest = cause - std::min(cause, kRunReach);
  const std::uint32_t highest = std::min(segments_ - 1, cause + kRunReach);
  std::uint32_t first = cause;
  std::uint32_t last = cause;
  if (cause >= next_) {
    while (first > lowest && has(first - 1)) {
      --first;
    }
    while (last < highest && has(last + 1)) {
      ++last;
    }
  }
  TcpSegment ack;
  ack.flow = flow_;
  ack.sequence = first;
  ack.acknowledged = next_;
  ack.selective = last;
  ack.is_ack = true;
  ack.echo_mark = marked_;
  ack.timestamp_ns = oldest_timestamp_ns_;
  return ack;
}

// ------------------------------------------------------------------ stack

namespace {

// The last 20 bytes are the TCP header.
constexpr std::uint32_t kTcpHeaderBytes = SPILLWAY_ETHERNET_HEADER + SPILLWAY_IPV4_HEADER + 20;
constexpr std::uint32_t kTcpAckBytes = 64;

// Any fixed key: labels only have to look random to a switch's hash.
constexpr std::uint64_t kFlowLabelKey = 0x7463706C6162656C;

std::uint32_t label_of(const Flow& flow) {
  return base::random_block(kFlowLabelKey, {flow.id, flow.job, flow.from, flow.to})[0];
}

// Stores the value in a free slot, or at the end, and returns its index.
template <typename T>
std::uint32_t put(T value, std::vector<T>& slots, std::vector<std::uint32_t>& free) {
  if (free.empty()) {
    slots.push_back(std::move(value));
    return static_cast<std::uint32_t>(slots.size() - 1);
  }
  const std::uint32_t index = free.back();
  free.pop_back();
  slots[index] = std::move(value);
  return index;
}

}  // namespace

TcpStack::TcpStack(const scenario::TcpConfig& config, std::uint8_t stack_index,
                   FlowListener& listener)
    : config_(config), stack_index_(stack_index), listener_(listener) {}

std::uint32_t TcpStack::segments_of(const Flow& flow) const {
  const std::uint64_t segments = (flow.bytes + config_.payload_bytes - 1) / config_.payload_bytes;
  SPILLWAY_CHECK(segments < UINT32_MAX);
  return std::max(static_cast<std::uint32_t>(segments), 1U);
}

std::uint8_t TcpStack::dscp_of(const Flow& flow) const {
  return config_.priority_by_flow ? spillway_dscp_of_priority(flow.priority) : 0;
}

std::uint8_t TcpStack::queue_of(const Flow& flow) const {
  return config_.priority_by_flow ? flow.priority : 0;
}

void TcpStack::expect_flow(const Flow& flow, base::Instant /*now*/) {
  Incoming incoming{
      .flow = flow, .label = label_of(flow), .receiver = TcpReceiver(config_, segments_of(flow))};
  const std::uint32_t index = put(std::move(incoming), incoming_, free_incoming_);
  SPILLWAY_CHECK(incoming_of_flow_.emplace(flow.id, index).second);
}

void TcpStack::start_flow(const Flow& flow, base::Instant /*now*/) {
  Outgoing outgoing{.flow = flow,
                    .label = label_of(flow),
                    .sender = std::make_unique<TcpSender>(config_, segments_of(flow)),
                    .timer = transport::kNever};
  const std::uint32_t index = put(std::move(outgoing), outgoing_, free_outgoing_);
  SPILLWAY_CHECK(outgoing_of_flow_.emplace(flow.id, index).second);
  refresh(index);
}

bool TcpStack::is_sending(FlowId flow) const {
  const auto found = outgoing_of_flow_.find(flow);
  return found != outgoing_of_flow_.end() && outgoing_[found->second].sender;
}

// Entries of ready_ and timers_ that still name a forgotten flow's slot do not harm the next flow:
// its turn to send and a check of its timer come early.
void TcpStack::forget_flow(FlowId flow) {
  SPILLWAY_CHECK(!is_sending(flow));
  if (const auto sent = outgoing_of_flow_.extract(flow); !sent.empty()) {
    free_outgoing_.push_back(sent.mapped());
  }
  if (const auto received = incoming_of_flow_.extract(flow); !received.empty()) {
    std::erase_if(acks_, [&](const PendingAck& ack) { return ack.incoming == received.mapped(); });
    free_incoming_.push_back(received.mapped());
  }
}

// ------------------------------------------------------------------ arrivals

void TcpStack::on_packet(Packet& packet, base::Instant now) {
  const bool damaged = packet.corrupt || packet.bytes < packet.sent_bytes;
  if (packet.kind != PacketKind::kTcp || damaged) {
    return;  // its checksum fails
  }
  if (packet.tcp.is_ack) {
    on_ack(packet.tcp, now);
  } else {
    on_data(packet, now);
  }
}

void TcpStack::on_ack(const TcpSegment& ack, base::Instant now) {
  const auto found = outgoing_of_flow_.find(ack.flow);
  if (found == outgoing_of_flow_.end() || !outgoing_[found->second].sender) {
    return;
  }
  Outgoing& outgoing = outgoing_[found->second];
  outgoing.sender->on_ack(ack, now);
  if (outgoing.sender->complete()) {
    retire(outgoing);
  } else {
    refresh(found->second);
  }
}

void TcpStack::retire(Outgoing& outgoing) {
  counters_ += outgoing.sender->counters();
  outgoing.sender.reset();
}

void TcpStack::on_data(const Packet& packet, base::Instant now) {
  const auto found = incoming_of_flow_.find(packet.tcp.flow);
  if (found == incoming_of_flow_.end()) {
    return;
  }
  Incoming& incoming = incoming_[found->second];
  const bool marked = packet.ecn == SPILLWAY_ECN_CE;
  counters_.marked += marked ? 1 : 0;
  const TcpReceiver::Acks acks = incoming.receiver.on_segment(packet.tcp, marked);
  for (unsigned i = 0; i < acks.count; ++i) {
    acks_.push_back({found->second, acks.ack[i]});
  }
  if (incoming.receiver.has_held_ack() && !incoming.timer_is_set) {
    incoming.timer_is_set = true;
    timers_.push({now + config_.ack_delay_max, found->second, true});
  }
  if (incoming.receiver.complete() && !incoming.ended) {
    incoming.ended = true;
    const std::uint32_t segments = segments_of(incoming.flow);
    const FlowResult result{.id = incoming.flow.id, .packets = segments, .delivered = segments};
    listener_.on_flow_end(result, now);  // may start flows here: `incoming` is invalid afterwards
  }
}

// ------------------------------------------------------------------ time

base::Instant TcpStack::next_timeout() const {
  return timers_.empty() ? transport::kNever : timers_.top().at;
}

void TcpStack::on_timeout(base::Instant now) {
  while (!timers_.empty() && timers_.top().at <= now) {
    const Timer due = timers_.top();
    timers_.pop();
    on_timer(due, now);
  }
}

void TcpStack::on_timer(const Timer& timer, base::Instant now) {
  if (timer.is_incoming) {
    Incoming& incoming = incoming_[timer.index];
    incoming.timer_is_set = false;
    if (incoming.receiver.has_held_ack()) {
      acks_.push_back({timer.index, incoming.receiver.release_held_ack()});
    }
    return;
  }
  Outgoing& outgoing = outgoing_[timer.index];
  if (!outgoing.sender || timer.at != outgoing.timer) {
    return;  // an earlier entry replaced it
  }
  outgoing.timer = transport::kNever;
  outgoing.sender->on_timeout(now);
  refresh(timer.index);
}

// A timer that moves to a later time stays in the queue and is set again when it fires: ACKs move
// it all the time, but timeouts are rare.
void TcpStack::refresh(std::uint32_t index) {
  Outgoing& outgoing = outgoing_[index];
  if (outgoing.sender->can_send() && !outgoing.is_ready) {
    outgoing.is_ready = true;
    ready_[queue_of(outgoing.flow)].push_back(index);
  }
  const base::Instant deadline = outgoing.sender->timeout();
  if (deadline < outgoing.timer) {
    outgoing.timer = deadline;
    timers_.push({deadline, index, false});
  }
}

// ------------------------------------------------------------------ transmissions

bool TcpStack::poll_transmit(base::Instant now, Packet& packet) {
  if (!acks_.empty()) {
    fill_ack(acks_.front(), packet);
    acks_.pop_front();
    return true;
  }
  for (auto queue = ready_.rbegin(); queue != ready_.rend(); ++queue) {
    while (!queue->empty()) {
      const std::uint32_t index = queue->front();
      queue->pop_front();
      outgoing_[index].is_ready = false;
      if (send_segment(index, now, packet)) {
        return true;
      }
    }
  }
  return false;
}

bool TcpStack::send_segment(std::uint32_t index, base::Instant now, Packet& packet) {
  Outgoing& outgoing = outgoing_[index];
  if (!outgoing.sender || !outgoing.sender->can_send()) {
    return false;
  }
  const TcpSender::Segment segment = outgoing.sender->send(now);
  const std::uint64_t offset = std::uint64_t{segment.sequence} * config_.payload_bytes;
  const std::uint64_t left = outgoing.flow.bytes - std::min(outgoing.flow.bytes, offset);
  const auto payload =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(left, config_.payload_bytes));
  fill_common(outgoing.flow, outgoing.label, packet);
  packet.to = outgoing.flow.to;
  packet.bytes = std::max(kTcpHeaderBytes + payload, kTcpAckBytes);
  packet.tcp = TcpSegment{};
  packet.tcp.flow = outgoing.flow.id;
  packet.tcp.sequence = segment.sequence;
  packet.tcp.retransmit = segment.retransmit;
  packet.tcp.timestamp_ns = now.since_zero().count();
  refresh(index);
  return true;
}

void TcpStack::fill_ack(const PendingAck& ack, Packet& packet) const {
  const Incoming& incoming = incoming_[ack.incoming];
  fill_common(incoming.flow, incoming.label, packet);
  packet.to = incoming.flow.from;
  packet.bytes = kTcpAckBytes;
  packet.tcp = ack.segment;
}

void TcpStack::fill_common(const Flow& flow, std::uint32_t label, Packet& packet) const {
  packet.kind = PacketKind::kTcp;
  packet.stack = stack_index_;
  packet.label = label;
  packet.dscp = dscp_of(flow);
  packet.ecn = config_.kind == scenario::TcpKind::kDctcp ? SPILLWAY_ECN_ECT0 : SPILLWAY_ECN_NOT_ECT;
  packet.priority = queue_of(flow);
  packet.importance = flow.importance;
}

TcpCounters TcpStack::counters() const {
  TcpCounters total = counters_;
  for (const Outgoing& outgoing : outgoing_) {
    if (outgoing.sender) {
      total += outgoing.sender->counters();
    }
  }
  return total;
}

}  // namespace spillway::sim
