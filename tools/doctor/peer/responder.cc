// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/peer/responder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tools/doctor/peer/burst.h"

namespace spillway::doctor {

ProberTable::Prober* ProberTable::find(std::uint64_t session) {
  const auto found = std::find_if(probers_.begin(), probers_.end(),
                                  [&](const Prober& one) { return one.session == session; });
  return found == probers_.end() ? nullptr : &*found;
}

ProberTable::Prober* ProberTable::find_tag(std::uint32_t tag) {
  const auto found = std::find_if(probers_.begin(), probers_.end(), [&](const Prober& one) {
    return static_cast<std::uint32_t>(one.session) == tag;
  });
  return found == probers_.end() ? nullptr : &*found;
}

ProberTable::Prober* ProberTable::begin(std::uint64_t session, base::Instant now) {
  Prober* place = find(session);
  if (place == nullptr && probers_.size() < kMaxProbers) {
    place = &probers_.emplace_back();
  }
  if (place == nullptr) {
    const auto oldest =
        std::min_element(probers_.begin(), probers_.end(),
                         [](const Prober& a, const Prober& b) { return a.heard < b.heard; });
    place = now - oldest->heard >= kKept ? &*oldest : nullptr;
  }
  if (place != nullptr) {
    *place = Prober{.session = session, .heard = now};
  }
  return place;
}

Responder::Responder(std::string host, bool watches) : host_(plain_name(host)), watches_(watches) {}

Answer Responder::take(const ProbeArrival& arrival, std::uint64_t overflowed, base::Instant now,
                       std::int64_t wall_now) {
  const std::optional<ProbePacket> question = read_probe(arrival.bytes);
  if (!question || !is_question(question->type)) {
    take_burst(arrival, now);
    return {};
  }
  if (!limit_.may_send(now)) {
    ++counters_.limited;
    return {};
  }
  Answer answer = answer_to_question(*question, arrival, overflowed, now, wall_now);
  if (answer.bytes.empty()) {
    ++counters_.turned_away;
    return {};
  }
  limit_.sent(base::bytes(static_cast<std::int64_t>(answer.bytes.size())), now);
  ++counters_.answered;
  return answer;
}

Answer Responder::answer_to_question(const ProbePacket& question, const ProbeArrival& arrival,
                                     std::uint64_t overflowed, base::Instant now,
                                     std::int64_t wall_now) {
  ProberTable::Prober* prober = nullptr;
  if (question.type == ProbeType::kStart) {
    prober = probers_.begin(question.session, now);
  } else if (question.type == ProbeType::kSummary) {
    prober = probers_.find(question.session);
  }
  if (prober == nullptr && question.type != ProbeType::kEcho) {
    return {};
  }
  ProbePacket packet = question;
  packet.type = answer_to(question.type);
  packet.tos = arrival.tos;
  packet.received_ns = arrival.wall_ns;
  packet.answered_ns = wall_now;
  Answer answer{.tos = question.answer_tos};
  answer.bytes.resize(question.type == ProbeType::kSummary ? kSummaryBytes : kProbeBytes);
  write_probe(packet, answer.bytes);
  if (question.type == ProbeType::kStart) {
    prober->overflowed_before = overflowed;
  } else if (question.type == ProbeType::kSummary) {
    ArrivalSummary summary = prober->summary;
    summary.watches = watches_;
    summary.host = host_;
    summary.overflowed = static_cast<std::uint32_t>(overflowed - prober->overflowed_before);
    write_summary(summary, answer.bytes);
  }
  return answer;
}

void Responder::take_burst(const ProbeArrival& arrival, base::Instant now) {
  const std::optional<std::uint32_t> tag = burst_tag_of(arrival.bytes);
  ProberTable::Prober* prober = tag ? probers_.find_tag(*tag) : nullptr;
  if (prober == nullptr) {
    ++counters_.garbage;
    return;
  }
  prober->heard = now;
  prober->summary.count(arrival.bytes.size(), arrival.tos >> 2);
  ++counters_.counted;
}

void Responder::take_stale(const StalePacket& packet) {
  const std::optional<std::uint32_t> tag = burst_tag_of(packet.payload);
  if (ProberTable::Prober* prober = tag ? probers_.find_tag(*tag) : nullptr) {
    prober->summary.count_stale(packet.frame_bytes, packet.interface);
  }
}

}  // namespace spillway::doctor
