// SPDX-License-Identifier: Apache-2.0
#include "sim/stacks/spillway_stack.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "codec/sample_data.h"
#include "collective/tolerant/payload.h"

namespace spillway::sim {

// ------------------------------------------------------------------ tensors

namespace {

constexpr float kGuard = 1234.5F;
constexpr std::size_t kBlocks = 16;  // random blocks drawn at a time

}  // namespace

std::vector<float> sample_tensor(std::size_t length, const packetize::Job& job,
                                 const wire::MessageId& message) {
  const std::uint64_t key = base::derive_key(
      job.seed,
      {static_cast<std::uint32_t>(message.operation),
       (static_cast<std::uint32_t>(message.signature) << 16) | message.piece,
       (std::uint32_t{message.source} << 8) | static_cast<std::uint32_t>(message.phase), job.id});
  std::vector<float> tensor(length);
  for (std::size_t first = 0; first < length; first += 4 * kBlocks) {
    base::RandomBlocks<kBlocks> blocks{};
    for (std::size_t i = 0; i < kBlocks; ++i) {
      blocks.word[0][i] = static_cast<std::uint32_t>(first / 4 + i);
    }
    base::random_blocks(key, blocks);
    for (std::size_t i = 0; i < std::min(4 * kBlocks, length - first); ++i) {
      tensor[first + i] = base::uniform_float(blocks.word[i / kBlocks][i % kBlocks]) - 0.5F;
    }
  }
  return tensor;
}

TensorSink::TensorSink(const packetize::PacketPlan& plan, const packetize::Job& job,
                       const wire::MessageId& message)
    : sent_(sample_tensor(plan.layout().tensor_length(), job, message)),
      guarded_(sent_.size() + 2 * kGuardValues, kGuard),
      depacketizer_(plan, job, message, std::span(guarded_).subspan(kGuardValues, sent_.size())) {}

std::span<const float> TensorSink::tensor() const {
  return std::span(guarded_).subspan(kGuardValues, sent_.size());
}

bool TensorSink::guards_intact() const {
  const auto is_guard = [](float value) { return value == kGuard; };
  const std::span<const float> all(guarded_);
  return std::ranges::all_of(all.first(kGuardValues), is_guard) &&
         std::ranges::all_of(all.last(kGuardValues), is_guard);
}

unsigned TensorSink::take(const wire::OpenedPacket& packet, base::ByteView bytes) {
  return collective::take_packet(depacketizer_, packet, bytes);
}

double TensorSink::finish() {
  depacketizer_.finish();
  return codec::nmse(tensor(), sent_);
}

// ------------------------------------------------------------------ the stack

namespace {

// Bytes of a data packet besides planes: its header and one check.
constexpr std::uint32_t kDataOverhead = sizeof(spillway_planes_header) + SPILLWAY_CHECK_SIZE;

FlowEnd flow_end(transport::Outcome outcome) {
  switch (outcome) {
    case transport::Outcome::kDeadline:
      return FlowEnd::kDeadline;
    case transport::Outcome::kCancelled:
      return FlowEnd::kCancelled;
    case transport::Outcome::kPeerDead:
      return FlowEnd::kPeerDead;
    default:
      return FlowEnd::kDone;
  }
}

transport::MessageKey key_of(const wire::MessageId& message, HostId peer) {
  return {message, static_cast<std::uint16_t>(peer)};
}

}  // namespace

std::uint32_t payload_bytes(const SpillwayStackConfig& config) {
  return config.packet_bytes - kDataOverhead;
}

std::uint32_t packets_of(const SpillwayStackConfig& config, std::uint64_t bytes) {
  const std::uint32_t payload = payload_bytes(config);
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, (bytes + payload - 1) / payload));
}

std::vector<std::uint8_t> packet_importance(const Flow& flow, std::uint32_t packets) {
  std::vector<std::uint8_t> importance;
  if (flow.required_permille == 0 && flow.unimportant_permille == 0) {
    return importance;
  }
  base::RandomSequence random(flow.id);
  importance.resize(packets, flow.importance);
  for (std::uint8_t& level : importance) {
    const std::uint64_t draw = random.next_below(1000);
    if (draw < flow.required_permille) {
      level = SPILLWAY_IMPORTANCE_REQUIRED;
    } else if (draw < flow.required_permille + std::uint64_t{flow.unimportant_permille}) {
      level = 0;
    }
  }
  return importance;
}

SpillwayStack::SpillwayStack(const SpillwayStackConfig& config, PacketPool& pool,
                             FlowListener& listener)
    : config_(config), pool_(pool), listener_(listener), port_(config.endpoint, config.session) {}

packetize::Job SpillwayStack::job() const {
  return {.id = config_.endpoint.job, .epoch = config_.endpoint.epoch, .seed = config_.job_seed};
}

packetize::PacketPlan SpillwayStack::plan_of(const Flow& flow) const {
  // The tensor whose planes take as many bytes as the flow has.
  const std::size_t length = std::max<std::size_t>(1, flow.bytes * 8 / config_.encoding.precision);
  return packetize::PacketPlan::make(length, config_.packet_limits, config_.encoding).value();
}

void SpillwayStack::add_peer(HostId host, base::Instant now) {
  // A host may learn of a peer from several flows; the endpoint refuses the repeats.
  static_cast<void>(port_.add_peer(static_cast<std::uint16_t>(host), now));
}

void SpillwayStack::expect_flow(const Flow& flow, base::Instant now) {
  add_peer(flow.from, now);
  transport::ReceiveOptions options{.id = flow.message,
                                    .packets = packets_of(config_, flow.bytes),
                                    .packet_bytes = config_.packet_bytes,
                                    .planes = config_.precision,
                                    .priority = flow.priority,
                                    .loss = flow.loss,
                                    .deadline = config_.deadline,
                                    .sink = nullptr};
  Receiving receiving{.flow = flow.id, .sink = nullptr};
  if (config_.real_bytes) {
    const packetize::PacketPlan plan = plan_of(flow);
    receiving.sink = std::make_unique<TensorSink>(plan, job(), flow.message);
    options.packets = static_cast<std::uint32_t>(plan.packet_count());
    options.packet_bytes = static_cast<std::uint32_t>(plan.max_packet_size());
    options.planes = static_cast<std::uint8_t>(plan.planes());
    options.sink = receiving.sink.get();
  }
  const bool accepted = endpoint().expect(options, now).ok();
  if (config_.observer != nullptr) {
    config_.observer->on_expect(*this, flow, options, accepted);
  }
  if (accepted) {
    receiving_.emplace(key_of(flow.message, flow.from), std::move(receiving));
  } else {
    listener_.on_flow_end({.id = flow.id, .end = FlowEnd::kPeerDead, .packets = options.packets},
                          now);
  }
}

void SpillwayStack::start_flow(const Flow& flow, base::Instant now) {
  add_peer(flow.to, now);
  transport::SendOptions options{.id = flow.message,
                                 .to = static_cast<std::uint16_t>(flow.to),
                                 .packets = packets_of(config_, flow.bytes),
                                 .packet_bytes = config_.packet_bytes,
                                 .priority = flow.priority,
                                 .importance = flow.importance,
                                 .packet_importance = {},
                                 .loss = flow.loss,
                                 .source = nullptr};
  Sending sending{.flow = flow.id, .source = nullptr};
  if (config_.real_bytes) {
    const packetize::PacketPlan plan = plan_of(flow);
    sending.source = std::make_unique<TensorSource>(plan, job(), flow.message);
    options.packets = static_cast<std::uint32_t>(plan.packet_count());
    options.packet_bytes = static_cast<std::uint32_t>(plan.max_packet_size());
    options.source = sending.source.get();
  }
  const std::vector<std::uint8_t> importance = packet_importance(flow, options.packets);
  options.packet_importance = importance;
  const bool accepted = endpoint().send(options, now).ok();
  if (config_.observer != nullptr) {
    config_.observer->on_start(*this, flow, options, accepted);
  }
  if (accepted) {
    sending_.emplace(key_of(flow.message, flow.to), std::move(sending));
  } else {
    listener_.on_flow_end({.id = flow.id, .end = FlowEnd::kPeerDead, .packets = options.packets},
                          now);
  }
}

void SpillwayStack::on_packet(Packet& packet, base::Instant now) {
  if (config_.observer == nullptr) {
    take_packet(packet, now);
  } else {
    config_.observer->before_arrival(*this, packet, pool_.payload(packet));
    take_packet(packet, now);
    config_.observer->after_arrival(*this, packet, pool_.payload(packet), now);
  }
  drain_events(now);
}

void SpillwayStack::take_packet(const Packet& packet, base::Instant now) {
  if (packet.kind == PacketKind::kSpillwayData && packet.payload == kNone) {
    on_size_only(packet, now);
  } else {
    port_.on_datagram(pool_.payload(packet), packet.ecn == SPILLWAY_ECN_CE, now);
  }
}

void SpillwayStack::on_size_only(const Packet& packet, base::Instant now) {
  if (packet.corrupt) {
    return;  // as if its check had failed
  }
  transport::DataArrival arrival;
  arrival.stamp = packet.data;
  arrival.sent_bytes = packet.sent_bytes - kFrameHeaderBytes;
  arrival.marked = packet.ecn == SPILLWAY_ECN_CE;
  arrival.trimmed = packet.bytes < packet.sent_bytes;
  arrival.planes = config_.precision;
  if (arrival.trimmed) {
    const std::uint32_t headers = kFrameHeaderBytes + kDataOverhead;
    const std::uint32_t left = packet.bytes - std::min(packet.bytes, headers);
    arrival.planes =
        static_cast<std::uint8_t>(left * config_.precision / (packet.sent_bytes - headers));
  }
  endpoint().on_data(arrival, now);
}

void SpillwayStack::on_timeout(base::Instant now) {
  endpoint().on_timeout(now);
  drain_events(now);
}

base::Instant SpillwayStack::next_timeout() const {
  return endpoint().next_timeout();
}

bool SpillwayStack::poll_transmit(base::Instant now, Packet& packet) {
  const bool sends = fill_next(now, packet);
  if (sends && config_.observer != nullptr) {
    config_.observer->on_transmit(*this, packet, pool_.payload(packet), now);
  }
  return sends;
}

bool SpillwayStack::fill_next(base::Instant now, Packet& packet) {
  if (!endpoint().poll_transmit(now, transmission_)) {
    return false;
  }
  const transport::Route& route = transmission_.route;
  packet.to = route.peer;
  packet.label = std::uint32_t{config_.endpoint.job} << 8 | route.path;
  packet.stack = config_.stack;
  packet.dscp = route.dscp;
  packet.ecn = route.ecn;
  if (route.is_control) {
    fill_control(transmission_, packet);
    return true;
  }
  packet.kind = PacketKind::kSpillwayData;
  packet.data = transmission_.data;
  packet.priority = transmission_.data.priority;
  packet.importance = transmission_.data.importance;
  std::uint32_t size = transmission_.data_bytes;
  if (transmission_.source != nullptr) {
    std::array<std::uint8_t, SPILLWAY_MAX_PACKET> bytes;
    size = static_cast<std::uint32_t>(port_.write(transmission_, bytes));
    std::copy_n(bytes.begin(), size, pool_.attach_payload(packet, size).begin());
  }
  packet.bytes = size + kFrameHeaderBytes;
  return true;
}

void SpillwayStack::fill_control(const transport::Transmission& transmission, Packet& packet) {
  packet.kind = PacketKind::kSpillwayControl;
  packet.importance = SPILLWAY_IMPORTANCE_REQUIRED;
  packet.priority = SPILLWAY_PRIORITIES - 1;
  const std::size_t size = transmission.control.size();
  port_.write(transmission, pool_.attach_payload(packet, size));
  packet.bytes = static_cast<std::uint32_t>(size) + kFrameHeaderBytes;
}

void SpillwayStack::drain_events(base::Instant now) {
  transport::Event event;
  while (endpoint().poll_event(event)) {
    if (const auto* received = std::get_if<transport::ReceiveReport>(&event)) {
      end_receive(*received, now);
    } else if (const auto* sent = std::get_if<transport::SendReport>(&event)) {
      end_send(*sent, now);
    } else if (const auto* dead = std::get_if<transport::PeerDead>(&event);
               dead != nullptr && config_.observer != nullptr) {
      config_.observer->on_peer_dead(*this, dead->rank, now);
    }
  }
}

void SpillwayStack::end_receive(const transport::ReceiveReport& report, base::Instant now) {
  const auto found = receiving_.find({report.id, report.id.source});
  SPILLWAY_CHECK(found != receiving_.end());
  const TensorSink* finished = nullptr;
  if (found->second.sink && report.outcome != transport::Outcome::kPeerDead) {
    worst_error_ = std::max(worst_error_, found->second.sink->finish());
    finished = found->second.sink.get();
  }
  if (config_.observer != nullptr) {
    config_.observer->on_receive_end(*this, report, finished);
  }
  const FlowResult result{.id = found->second.flow,
                          .end = flow_end(report.outcome),
                          .packets = report.packets,
                          .delivered = report.delivered,
                          .trimmed = report.trimmed(),
                          .important_expected = report.important_expected,
                          .important_delivered = report.important_delivered};
  receiving_.erase(found);
  listener_.on_flow_end(result, now);
}

void SpillwayStack::end_send(const transport::SendReport& report, base::Instant now) {
  const auto found = sending_.find({report.id, report.to});
  SPILLWAY_CHECK(found != sending_.end());
  const FlowId flow = found->second.flow;
  sending_.erase(found);
  if (config_.observer != nullptr) {
    config_.observer->on_send_end(*this, report);
  }
  // The receiver reports how a flow ended, unless it is the dead peer.
  if (report.outcome == transport::Outcome::kPeerDead) {
    listener_.on_flow_end({.id = flow, .end = FlowEnd::kPeerDead, .packets = report.packets}, now);
  }
}

}  // namespace spillway::sim
