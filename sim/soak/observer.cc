// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/observer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "packetize/depacketizer.h"
#include "wire/control_packet.h"

namespace spillway::sim {
namespace {

// Memory is measured once in this many arrivals, and whenever a message begins or ends.
constexpr std::uint64_t kArrivalsPerLook = 64;

// Upper bounds of what tables cost: per peer and path, per message and its packets, per timer.
constexpr std::size_t kPeerBytes = 2048;
constexpr std::size_t kPathBytes = 1024;
constexpr std::size_t kMessageBytes = 1024;
constexpr std::size_t kPacketBytes = 8;
constexpr std::size_t kTimerBytes = 24;
constexpr std::size_t kTimersPerMessage = 32;

// Packets refused because of their headers or checks.
std::uint64_t refused_by(const SpillwayStack& stack) {
  const auto& faults = stack.port().faults();
  const transport::EndpointCounters& counters = stack.endpoint().counters();
  return std::accumulate(faults.begin(), faults.end(), std::uint64_t{0}) + counters.foreign_job +
         counters.other_epoch + counters.unknown_peer + counters.misaddressed;
}

// Compares the counters except those of refusals.
bool same(transport::EndpointCounters a, transport::EndpointCounters b) {
  static_assert(std::has_unique_object_representations_v<transport::EndpointCounters>);
  for (transport::EndpointCounters* counters : {&a, &b}) {
    counters->foreign_job = counters->other_epoch = 0;
    counters->unknown_peer = counters->misaddressed = 0;
  }
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

std::size_t memory_bound(const transport::EndpointConfig& config, std::size_t packets) {
  const transport::EndpointLimits& limits = config.limits;
  const std::size_t messages = std::size_t{limits.outgoing_messages} + limits.incoming_messages;
  return limits.peers * (kPeerBytes + config.exchange.paths * kPathBytes) +
         (messages + limits.finished_kept) * kMessageBytes + messages * packets * kPacketBytes +
         (messages + limits.peers) * kTimersPerMessage * kTimerBytes;
}

// The shortest prefix of a packet in which this many bytes of planes can be trusted.
std::size_t length_with(const wire::DataHeader& header, std::size_t trusted) {
  return spillway_packed_size(static_cast<__u32>(trusted), header.head_bytes, header.tail());
}

HostId source_of(const Packet& packet, base::ByteView payload) {
  return payload.empty() ? packet.data.message.source
                         : base::load_le<std::uint16_t>(payload.data() +
                                                        offsetof(spillway_packet_header, source));
}

}  // namespace

// ------------------------------------------------------------------ messages

SoakObserver::MessageName SoakObserver::name_of(const SpillwayStack& stack,
                                                const wire::MessageId& id, HostId to) {
  return {stack.config().stack, id.source, to, id.operation, id.signature, id.piece, id.phase};
}

MessageRecord* SoakObserver::find(const MessageName& name) {
  const auto found = messages_.find(name);
  return found == messages_.end() ? nullptr : &record_.messages[found->second];
}

void SoakObserver::on_expect(const SpillwayStack& stack, const Flow& flow,
                             const transport::ReceiveOptions& options, bool accepted) {
  const MessageName name = name_of(stack, flow.message, flow.to);
  SPILLWAY_CHECK(messages_.emplace(name, record_.messages.size()).second);
  record_.messages.push_back({.flow = flow,
                              .packets = options.packets,
                              .deadline = options.deadline,
                              .importance = packet_importance(flow, options.packets),
                              .transmitted = std::vector<bool>(options.packets),
                              .started = network_->now(),
                              .expected = accepted});
  record_.messages.back().importance.resize(options.packets, flow.importance);
  if (accepted && options.sink != nullptr) {
    originals_.emplace(name, encode_apart(stack, flow));
  }
  note_memory(stack);
}

void SoakObserver::on_start(const SpillwayStack& stack, const Flow& flow,
                            const transport::SendOptions&, bool accepted) {
  find(name_of(stack, flow.message, flow.to))->sent = accepted;
  note_memory(stack);
}

void SoakObserver::on_receive_end(const SpillwayStack& stack,
                                  const transport::ReceiveReport& report, const TensorSink* sink) {
  const MessageName name = name_of(stack, report.id, stack.host());
  MessageRecord& message = *find(name);
  if (message.received) {
    note_violation(stack, fmt::format("flow {} ended twice", message.flow.id));
  }
  message.received = report;
  message.received_at = network_->now();
  if (sink != nullptr) {
    message.guards_intact = sink->guards_intact();
    message.is_exact = is_exact(stack, report, originals_.at(name), sink->tensor());
  }
  originals_.erase(name);
  note_memory(stack);
}

void SoakObserver::on_send_end(const SpillwayStack& stack, const transport::SendReport& report) {
  MessageRecord& message = *find(name_of(stack, report.id, report.to));
  message.reported = report;
  message.reported_at = network_->now();
  note_memory(stack);
}

// ------------------------------------------------------------------ packets

void SoakObserver::on_transmit(const SpillwayStack& stack, const Packet& packet,
                               base::ByteView payload, base::Instant) {
  Contact& contact = contacts_[{stack.config().stack, packet.to, stack.host()}];
  contact.tried = network_->now();
  ++contact.tries;
  if (attacker_ != nullptr) {
    attacker_->overhear(stack, packet, payload);
  }
  if (packet.kind != PacketKind::kSpillwayData) {
    return;
  }
  MessageRecord& message = *find(name_of(stack, packet.data.message, packet.to));
  message.transmitted.at(packet.data.packet) = true;
  if (packet.data.importance != message.importance[packet.data.packet]) {
    note_violation(stack, fmt::format("packet {} of flow {} was sent with importance {}, not {}",
                                      packet.data.packet, message.flow.id, packet.data.importance,
                                      message.importance[packet.data.packet]));
  }
}

void SoakObserver::before_arrival(const SpillwayStack& stack, const Packet& packet,
                                  base::ByteView payload) {
  before_ = {.counters = stack.endpoint().counters(), .refused = refused_by(stack)};
  if (const auto attack = attack_of(packet); attack && attack->is_forgery) {
    before_.numbers = numbers_of(stack);
    before_.next_timeout = stack.endpoint().next_timeout();
    before_.memory = stack.endpoint().memory_bytes();
  }
  if (!payload.empty() && packet.kind == PacketKind::kSpillwayControl) {
    note_control(stack, payload);
  } else if (!payload.empty()) {
    note_planes(stack, payload);
  } else if (!packet.corrupt && packet.data.destination == stack.host()) {
    note_data(stack, packet.data);
  }
}

void SoakObserver::after_arrival(const SpillwayStack& stack, const Packet& packet,
                                 base::ByteView payload, base::Instant now) {
  const transport::EndpointCounters& after = stack.endpoint().counters();
  if (const auto attack = attack_of(packet)) {
    ++record_.attacks_arrived;
    // The endpoint never gets a damaged size-only packet.
    if (attack->is_forgery && !packet.corrupt) {
      check_forgery(stack, *attack);
    }
  }
  if (before_.is_duplicate) {
    check_duplicate(stack);
  }
  if (after.data_taken > before_.counters.data_taken ||
      after.control_taken > before_.counters.control_taken) {
    Contact& contact = contacts_[{stack.config().stack, stack.host(), source_of(packet, payload)}];
    contact.heard = now;
    contact.heard_at = network_->now();
    contact.tries = 0;
  }
  if (++arrivals_ % kArrivalsPerLook == 0) {
    note_memory(stack);
  }
}

std::vector<std::uint64_t> SoakObserver::numbers_of(const SpillwayStack& stack) const {
  std::vector<std::uint64_t> numbers;
  for (HostId host = 0; host < network_->hosts(); ++host) {
    const auto* session = stack.port().session_with(static_cast<std::uint16_t>(host));
    if (session != nullptr) {
      numbers.push_back(session->newest_control);
      numbers.insert(numbers.end(), session->newest_data.begin(), session->newest_data.end());
    }
  }
  return numbers;
}

// Requires one more refusal and no other change.
void SoakObserver::check_forgery(const SpillwayStack& stack, const AttackLabel& label) {
  const std::uint64_t refused = refused_by(stack) - before_.refused;
  const bool changed = !same(stack.endpoint().counters(), before_.counters) ||
                       numbers_of(stack) != before_.numbers ||
                       stack.endpoint().next_timeout() != before_.next_timeout ||
                       stack.endpoint().memory_bytes() != before_.memory;
  if (refused == 1 && !changed) {
    ++record_.forgeries_refused;
    ++record_.refused[static_cast<std::size_t>(label.attack)];
    return;
  }
  note_violation(stack, fmt::format("a forged packet (attack {}) was refused {} times{}",
                                    static_cast<unsigned>(label.attack), refused,
                                    changed ? " and changed something" : ""));
}

// A packet that arrived before, whoever repeated it, must be counted as a repeat, and a control
// packet must have no effect. A repeated data packet may be longer this time.
void SoakObserver::check_duplicate(const SpillwayStack& stack) {
  const transport::EndpointCounters& after = stack.endpoint().counters();
  const transport::EndpointCounters& before = before_.counters;
  const std::uint64_t counted = refused_by(stack) - before_.refused + after.replayed -
                                before.replayed + after.repeated - before.repeated;
  if (counted == 1 && after.control_taken == before.control_taken) {
    ++record_.duplicates_counted;
  } else {
    note_violation(stack,
                   fmt::format("a packet that came before was counted {} times as that{}", counted,
                               after.control_taken == before.control_taken ? "" : " and taken"));
  }
}

void SoakObserver::note_data(const SpillwayStack& stack, const wire::DataStamp& stamp) {
  before_.is_duplicate =
      !data_seen_[{stack.config().stack, stack.host()}]
           .emplace(stamp.message.source, stamp.path, static_cast<std::uint32_t>(stamp.number))
           .second;
}

void SoakObserver::note_control(const SpillwayStack& stack, base::ByteView payload) {
  wire::ControlPacket control;
  if (wire::read_control_header(payload, control) != wire::PacketFault::kNone) {
    return;
  }
  const transport::PeerSession* session = stack.port().session_with(control.source);
  if (session != nullptr && control.destination == stack.host() &&
      wire::open_control_packet(payload, session->in, control, session->newest_control) ==
          wire::PacketFault::kNone) {
    before_.is_duplicate = !control_seen_[{stack.config().stack, stack.host()}]
                                .emplace(control.source, control.sequence)
                                .second;
  }
}

void SoakObserver::note_planes(const SpillwayStack& stack, base::ByteView payload) {
  wire::OpenedPacket opened;
  if (wire::read_data_header(payload, opened.header) != wire::PacketFault::kNone) {
    return;
  }
  const wire::DataStamp& stamp = opened.header.stamp;
  const transport::PeerSession* session = stack.port().session_with(stamp.message.source);
  if (session == nullptr || stamp.destination != stack.host() ||
      wire::open_data_packet(payload, session->in, opened, session->newest_on(stamp.path)) !=
          wire::PacketFault::kNone) {
    return;
  }
  note_data(stack, stamp);
  const auto found = originals_.find(name_of(stack, opened.header.stamp.message, stack.host()));
  if (found == originals_.end()) {
    return;  // the message has ended or is for another host
  }
  Original& original = found->second;
  const std::vector<std::uint8_t>& sent = original.planes.at(opened.header.stamp.packet);
  std::vector<std::uint8_t> came(opened.header.payload_bytes());
  const wire::TrustedPlanes trusted = wire::copy_trusted_planes(payload, opened, came);
  if (came.size() != sent.size() ||
      !std::equal(sent.begin(), sent.begin() + trusted.bytes, came.begin())) {
    note_violation(stack, fmt::format("packet {} passed its checks with planes nobody sent",
                                      opened.header.stamp.packet));
    return;
  }
  std::size_t& most = original.trusted[opened.header.stamp.packet];
  most = std::max(most, trusted.bytes);
}

// ------------------------------------------------------------------ tensors

SoakObserver::Original SoakObserver::encode_apart(const SpillwayStack& stack, const Flow& flow) {
  const packetize::PacketPlan plan = stack.plan_of(flow);
  const std::vector<float> tensor =
      sample_tensor(plan.layout().tensor_length(), stack.job(), flow.message);
  Original original{.plan = plan,
                    .packets = packetize::Packetizer(plan).packetize(
                        tensor, stack.job(), {.message = flow.message}, own_auth_),
                    .planes = {},
                    .trusted = std::vector<std::size_t>(plan.packet_count())};
  for (std::size_t packet = 0; packet < original.packets.size(); ++packet) {
    wire::OpenedPacket opened;
    SPILLWAY_CHECK(wire::open_data_packet(original.packets[packet], own_auth_, opened) ==
                   wire::PacketFault::kNone);
    std::vector<std::uint8_t>& planes = original.planes.emplace_back(opened.header.payload_bytes());
    wire::copy_trusted_planes(original.packets[packet], opened, planes);
  }
  return original;
}

// True if the tensor and the report are what the arrived planes decode to.
bool SoakObserver::is_exact(const SpillwayStack& stack, const transport::ReceiveReport& report,
                            const Original& original, std::span<const float> tensor) {
  std::vector<float> expected(tensor.size());
  packetize::Depacketizer receiver(original.plan, stack.job(), report.id, expected);
  for (std::size_t packet = 0; packet < original.packets.size(); ++packet) {
    if (original.trusted[packet] > 0) {
      wire::DataHeader header;
      SPILLWAY_CHECK(wire::read_data_header(original.packets[packet], header) ==
                     wire::PacketFault::kNone);
      receiver.add(original.packets[packet].first(length_with(header, original.trusted[packet])),
                   own_auth_);
    }
    if (receiver.planes_of(packet) != report.planes.at(packet)) {
      return false;
    }
  }
  receiver.finish();
  return std::memcmp(expected.data(), tensor.data(), tensor.size_bytes()) == 0;
}

// ------------------------------------------------------------------ hosts

void SoakObserver::on_peer_dead(const SpillwayStack& stack, HostId peer, base::Instant now) {
  const std::uint8_t job = stack.config().stack;
  Contact& contact = contacts_[{job, stack.host(), peer}];
  contact.given_up = true;
  const Contact& reverse = contacts_[{job, peer, stack.host()}];
  record_.deaths.push_back({.job = job,
                            .host = stack.host(),
                            .peer = peer,
                            .at = network_->now(),
                            .silence = now - contact.heard,
                            .unattempted = network_->now() - contact.tried,
                            .unanswered = network_->now() - reverse.heard_at,
                            .lost_tries = contact.tries,
                            .gave_up_first = reverse.given_up});
}

void SoakObserver::note_memory(const SpillwayStack& stack) {
  std::size_t& peak = memory_peaks_[{stack.config().stack, stack.host()}];
  peak = std::max(peak, stack.endpoint().memory_bytes());
}

void SoakObserver::note_violation(const SpillwayStack& stack, const std::string& what) {
  record_.violations.push_back(fmt::format("job {} on host {} at {} ns: {}", stack.config().stack,
                                           stack.host(), network_->now().since_zero().count(),
                                           what));
}

void SoakObserver::finish(const SpillwayStack& stack) {
  const std::uint8_t job = stack.config().stack;
  std::size_t most_packets = 0;
  for (const MessageRecord& message : record_.messages) {
    if (message.flow.job == job) {
      most_packets = std::max<std::size_t>(most_packets, message.packets);
    }
  }
  note_memory(stack);
  record_.endpoints.push_back({.job = job,
                               .host = stack.host(),
                               .counters = stack.endpoint().counters(),
                               .control_arrived = control_seen_[{job, stack.host()}].size(),
                               .memory_peak = memory_peaks_[{job, stack.host()}],
                               .memory_bound = memory_bound(stack.config().endpoint, most_packets),
                               .is_idle = stack.endpoint().next_timeout() == transport::kNever});
}

}  // namespace spillway::sim
