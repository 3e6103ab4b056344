// SPDX-License-Identifier: Apache-2.0
//
// The contributor's side: how many parts it sends, which next, and what it does when results do not
// come.
#include <algorithm>

#include "transport/sum_exchange.h"

namespace spillway::transport {
namespace {

using wire::RankSet;
using wire::SumKind;

constexpr double kLeastWindow = 4.0;
constexpr double kLargestWindow = 1024.0;
// Results asked for at a time.
constexpr unsigned kAsked = 16;

}  // namespace

// Owners take turns.
bool SumExchange::poll_part(base::Instant now, Transmission& out) {
  auto flow = flows_.upper_bound(turn_);
  for (std::size_t turns = flows_.size(); turns > 0; --turns, ++flow) {
    flow = flow == flows_.end() ? flows_.begin() : flow;
    if (!is_full(flow->first) && poll_flow(flow->second, now, out)) {
      turn_ = flow->first;
      return true;
    }
  }
  return false;
}

bool SumExchange::has_unsent(Sum& sum) const {
  while (sum.touched < sum.chunks.size() &&
         sum.chunks[sum.touched].state != ChunkState::kUntouched) {
    ++sum.touched;  // the result came first
  }
  return sum.touched < sum.chunks.size();
}

void SumExchange::forget(const Sum& sum, Flow& flow) {
  std::erase(flow.line, sum.slot);
  flow.by_number.erase(sum.key());
}

SumExchange::Sum* SumExchange::next_to_send(Flow& flow) {
  const bool has_room = flow.in_flight < static_cast<std::uint32_t>(flow.window);
  while (!flow.line.empty()) {
    Sum& sum = *sums_.at(has_room ? flow.line.front() : flow.by_number.begin()->second);
    if (has_unsent(sum)) {
      const bool goes_on = sum.touched < sum.done + static_cast<std::uint32_t>(kLeastWindow);
      return has_room || goes_on ? &sum : nullptr;
    }
    forget(sum, flow);
  }
  return nullptr;
}

bool SumExchange::poll_flow(Flow& flow, base::Instant now, Transmission& out) {
  Sum* const sum = next_to_send(flow);
  if (sum == nullptr) {
    return false;
  }
  Chunk& chunk = sum->chunks[sum->touched];
  chunk.state = ChunkState::kOpen;
  chunk.since = now;
  ++flow.in_flight;
  ++sum->report.sent;
  arm(*sum, now + sum->wait);
  return write({.kind = SumKind::kPart,
                .slot = sum->slot,
                .chunk = static_cast<std::uint16_t>(sum->touched++),
                .to = sum->options.id.owner},
               *sum, now, out);
}

bool SumExchange::on_result(Sum& sum, const wire::SumPacket& packet,
                            std::span<const std::uint64_t> words, bool marked, base::Instant now) {
  Chunk& chunk = sum.chunks[packet.chunk.chunk];
  if (packet.source != sum.options.id.owner || chunk.state == ChunkState::kDone) {
    ++core_.counters.sums_duplicate;
    return false;
  }
  Flow& flow = flows_[sum.options.id.owner];
  if (chunk.state == ChunkState::kOpen) {
    --flow.in_flight;
    // Parts sent before the first result came may have waited for ranks that began later.
    if (chunk.attempts == 0 && sum.done > 0 && chunk.since >= sum.began) {
      flow.wait.add(now - chunk.since);
    }
    adapt(flow, marked || packet.is_marked(SPILLWAY_SUM_CONGESTED), now);
  }
  chunk.state = ChunkState::kDone;
  sum.wait = result_timeout(flow);
  sum.latest = std::max<std::uint32_t>(sum.latest, packet.chunk.chunk);
  sum.began = sum.done == 0 ? now : sum.began;
  sum.trim_hints.erase(packet.chunk.chunk);
  std::copy(words.begin(), words.end(), words_of(sum, packet.chunk.chunk).begin());
  sum.options.ranks[packet.chunk.chunk] = packet.ranks;
  const RankSet missing = sum.options.contributors - packet.ranks;
  sum.report.partial += missing.empty() ? 0 : 1;
  while (sum.oldest < sum.chunks.size() && sum.chunks[sum.oldest].state == ChunkState::kDone) {
    ++sum.oldest;
  }
  if (++sum.done == sum.chunks.size()) {
    queue_confirmation(sum.options.id);
    remember_end(sum.options.id);
    end(sum);
  }
  return true;
}

bool SumExchange::has_ended(const wire::SumPacket& packet) const {
  const wire::ChunkName& name = packet.chunk;
  const auto found = ended_.find(name.operation);
  return core_.retired.contains(name.operation) ||
         (found != ended_.end() &&
          found->second.contains({name.operation, name.piece, name.owner}));
}

void SumExchange::remember_end(const SumId& id) {
  std::erase_if(ended_, [&](const auto& entry) { return core_.retired.contains(entry.first); });
  ended_[id.operation].insert({id.operation, id.piece, id.owner});
}

// Says that this rank has all results; queued apart, because the sum is gone.
void SumExchange::queue_confirmation(const SumId& id) {
  if (finished_.size() < kMaxPending) {
    finished_.push_back(id);
  }
}

// Ignores requests for parts that this rank has not sent: the window decides when they leave. A cut
// packet that somebody made up may have caused the request, so answering would let anybody make
// this rank send past its window. It also keeps a RETRANSMIT a sign that the part was sent before.
void SumExchange::on_flush(Sum& sum, const wire::SumPacket& packet, base::Instant now) {
  Chunk& chunk = sum.chunks[packet.chunk.chunk];
  const bool is_asked =
      packet.ranks.contains(core_.config.rank) && packet.source == sum.options.id.owner;
  if (!is_asked || chunk.state != ChunkState::kOpen || now < chunk.due) {
    return;
  }
  chunk.attempts = 1;
  chunk.due = now + kMinTimeout / 2;
  ++sum.report.sent;
  ++sum.report.retransmitted;
  ++core_.counters.sums_repeated;
  queue({.kind = SumKind::kRetransmit,
         .slot = sum.slot,
         .chunk = packet.chunk.chunk,
         .to = sum.options.id.owner});
}

void SumExchange::adapt(Flow& flow, bool congested, base::Instant now) {
  if (!congested) {
    flow.window =
        std::min(kLargestWindow, flow.window + (flow.is_starting ? 1.0 : 1.0 / flow.window));
  } else if (now - flow.cut > flow.wait.usual()) {
    flow.is_starting = false;
    flow.cut = now;
    flow.window = std::max(kLeastWindow, flow.window / 2);
  }
}

base::Duration SumExchange::result_timeout(const Flow& flow) {
  return flow.wait.is_known() ? clamped(flow.wait.timeout() * 2) : kFirstTimeout;
}

void SumExchange::ask(Sum& sum, std::uint32_t index, base::Instant now) {
  sum.chunks[index].attempts = 1;  // the time to its result tells nothing from now on
  sum.chunks[index].since = now;
  queue({.kind = SumKind::kWant,
         .slot = sum.slot,
         .chunk = static_cast<std::uint16_t>(index),
         .to = sum.options.id.owner});
}

// A WANT says that this rank has sent its parts up to the chunk. So nothing that anybody can make
// up may cause one for an unsent chunk, nor one that overtakes the part in the network's queues: it
// leaves after the time in which parts usually become results.
void SumExchange::on_trimmed_result(Sum& sum, std::uint32_t index, base::Instant now) {
  const Chunk& chunk = sum.chunks[index];
  if (index >= sum.touched || chunk.attempts > 0) {
    return;
  }
  const RoundTrip& wait = flows_[sum.options.id.owner].wait;
  TrimHint& cut = sum.trim_hints[index];
  cut.due = std::max(now, chunk.since + (wait.is_known() ? wait.usual() : kMinTimeout));
  arm(sum, cut.due);
}

base::Instant SumExchange::request_hinted_results(Sum& sum, base::Instant now) {
  base::Instant next = kNever;
  for (auto cut = sum.trim_hints.begin(); cut != sum.trim_hints.end();) {
    if (cut->second.due > now) {
      next = std::min(next, cut->second.due);
      ++cut;
      continue;
    }
    if (sum.chunks[cut->first].attempts == 0) {
      ask(sum, cut->first, now);
    }
    cut = sum.trim_hints.erase(cut);
  }
  return next;
}

void SumExchange::request_results(Sum& sum, base::Instant now) {
  const base::Instant next_cut = request_hinted_results(sum, now);
  unsigned asked = 0;
  bool has_gap = false;
  base::Instant next = now + sum.wait;
  // Where nothing has come, the latest part tells as much as all.
  const std::uint32_t first = sum.done == 0 && sum.touched > 0 ? sum.touched - 1 : sum.oldest;
  for (std::uint32_t i = first; i < sum.touched && asked < kAsked; ++i) {
    const Chunk& chunk = sum.chunks[i];
    if (chunk.state != ChunkState::kOpen) {
      continue;
    }
    if (now - chunk.since < sum.wait) {
      next = std::min(next, chunk.since + sum.wait);
      continue;
    }
    ask(sum, i, now);
    ++asked;
    has_gap |= i < sum.latest;
  }
  if (has_gap) {
    adapt(flows_[sum.options.id.owner], true, now);
  }
  if (asked > 0) {
    sum.wait = std::min(sum.wait * 2, kMaxTimeout);
    next = now + sum.wait;
  }
  arm(sum, std::min(next, next_cut));
}

}  // namespace spillway::transport
