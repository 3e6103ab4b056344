// SPDX-License-Identifier: Apache-2.0
//
// The code that owners and contributors share: sums begin and end, packets come and go.
#include "transport/sum_exchange.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "wire/packet.h"

namespace spillway::transport {
namespace {

using wire::RankSet;
using wire::SumKind;

}  // namespace

base::Status SumExchange::check(const SumOptions& options) {
  const auto wrong = [](const std::string& what) {
    return base::invalid_argument("a sum " + what);
  };
  if (options.chunks() == 0 || options.chunks() > kMaxChunks ||
      options.words.size() != std::size_t{options.chunks()} * SPILLWAY_SUM_WORDS) {
    return wrong("has 1 to " + std::to_string(kMaxChunks) + " chunks of " +
                 std::to_string(SPILLWAY_SUM_WORDS) + " words");
  }
  if (options.id.owner >= SPILLWAY_SUM_RANKS || core_.config.rank >= SPILLWAY_SUM_RANKS) {
    return wrong("is of ranks below " + std::to_string(SPILLWAY_SUM_RANKS));
  }
  if (options.contributors.contains(options.id.owner) ||
      options.recipients.contains(options.id.owner)) {
    return wrong("has an owner that is no contributor and no recipient: use owner_contributes");
  }
  base::Status status;
  (options.contributors | options.recipients | RankSet::of(options.id.owner))
      .for_each([&](std::uint16_t rank) {
        if (rank != core_.config.rank && status.ok()) {
          status = core_.find_living(rank).status();
        }
      });
  return status;
}

base::Status SumExchange::begin(const SumOptions& options, base::Instant now) {
  if (base::Status status = check(options); !status.ok()) {
    return status;
  }
  const Key key{options.id.operation, options.id.piece, options.id.owner};
  if (slots_.contains(key)) {
    return base::invalid_argument("this sum is under way already");
  }
  const std::uint32_t slot = next_slot_++;
  slots_[key] = slot;
  auto made = std::make_unique<Sum>();
  Sum& sum = *made;
  sums_[slot] = std::move(made);
  sum.options = options;
  sum.slot = slot;
  sum.chunks.resize(options.chunks());
  sum.report = {.id = options.id, .chunks = options.chunks(), .missing = {}};
  await(sum, true, now);
  if (!is_owner(sum)) {
    std::fill(sum.options.ranks.begin(), sum.options.ranks.end(), RankSet());
    Flow& flow = flows_[options.id.owner];
    flow.line.push_back(slot);
    flow.by_number.emplace(key, slot);
    sum.wait = result_timeout(flow);
    return {};
  }
  std::fill(sum.options.ranks.begin(), sum.options.ranks.end(),
            options.owner_contributes ? RankSet::of(options.id.owner) : RankSet());
  sum.progress = SumProgress(options.contributors);
  if (options.contributors.empty()) {
    touch(sum, options.chunks() - 1, now);
    for (std::uint32_t chunk = 0; chunk < options.chunks(); ++chunk) {
      close(sum, chunk, now);
    }
    return {};
  }
  take_early(sum, now);
  return {};
}

void SumExchange::withdraw(const SumId& id) {
  if (Sum* sum = find({id.operation, id.piece, id.owner}); sum != nullptr) {
    drop(*sum);
  }
}

void SumExchange::finish_for(const SumId& id, std::uint16_t rank) {
  if (Sum* sum = find({id.operation, id.piece, id.owner}); sum != nullptr) {
    sum->told.insert(rank);
    end_if_confirmed(*sum);
  }
}

base::Duration SumExchange::clamped(base::Duration wait) {
  return std::clamp(wait, kMinTimeout, kMaxTimeout);
}

SumExchange::Sum* SumExchange::find(const Key& key) {
  const auto found = slots_.find(key);
  return found == slots_.end() ? nullptr : sums_.at(found->second).get();
}

SumExchange::Sum* SumExchange::find(const wire::SumPacket& packet) {
  return find({packet.chunk.operation, packet.chunk.piece, packet.chunk.owner});
}

std::span<std::uint64_t> SumExchange::words_of(const Sum& sum, std::uint32_t chunk) const {
  return sum.options.words.subspan(std::size_t{chunk} * SPILLWAY_SUM_WORDS, SPILLWAY_SUM_WORDS);
}

void SumExchange::hear(const RankSet& ranks, base::Instant now) {
  ranks.for_each([&](std::uint16_t rank) {
    if (Peer* peer = core_.peers.find(rank); peer != nullptr) {
      peer->last_heard = now;
      peer->has_spoken = true;
    }
  });
}

// An owner waits for all other ranks, and these wait for the owner.
void SumExchange::await(const Sum& sum, bool begins, base::Instant now) {
  const RankSet others = is_owner(sum) ? sum.everybody() : RankSet::of(sum.options.id.owner);
  others.for_each([&](std::uint16_t rank) {
    Peer* peer = core_.peers.find(rank);
    SPILLWAY_CHECK(peer != nullptr);  // check() made sure
    if (begins) {
      core_.await(*peer, now);
      ++peer->sums;
    } else {
      --peer->sums;
    }
  });
}

void SumExchange::arm(Sum& sum, base::Instant due) {
  if (due < sum.armed) {
    sum.armed = due;
    core_.timers.arm({due, TimerKind::kSum, sum.slot});
  }
}

void SumExchange::queue(const Work& work) {
  if (work_.size() < kMaxPending) {
    work_.push_back(work);
  }
}

void SumExchange::end(Sum& sum) {
  sum.report.stage = SumStage::kOver;
  core_.events.push_back(std::move(sum.report));
  drop(sum);
}

void SumExchange::drop(Sum& sum) {
  await(sum, false, base::Instant());
  if (!is_owner(sum)) {
    Flow& flow = flows_[sum.options.id.owner];
    flow.in_flight -= static_cast<std::uint32_t>(
        std::count_if(sum.chunks.begin(), sum.chunks.end(),
                      [](const Chunk& chunk) { return chunk.state == ChunkState::kOpen; }));
    forget(sum, flow);
  }
  const std::uint32_t slot = sum.slot;
  slots_.erase(sum.key());
  sums_.erase(slot);
}

void SumExchange::on_packet(const wire::SumPacket& packet, std::span<const std::uint64_t> words,
                            bool marked, base::Instant now) {
  ++core_.counters.sums_taken;
  Sum* sum = find(packet);
  if (sum == nullptr) {
    if (is_part(packet)) {
      keep_early(packet, words, marked);
    } else if (packet.kind == SumKind::kResult && has_ended(packet)) {
      queue_confirmation(
          {packet.chunk.operation, packet.chunk.signature, packet.chunk.piece, packet.chunk.owner});
    }
    return;
  }
  if (take(*sum, packet, words, marked, now)) {
    hear(is_part(packet) ? packet.ranks : RankSet::of(packet.source), now);
  }
}

bool SumExchange::is_part(const wire::SumPacket& packet) {
  return packet.kind == SumKind::kPart || packet.kind == SumKind::kRetransmit;
}

bool SumExchange::take(Sum& sum, const wire::SumPacket& packet,
                       std::span<const std::uint64_t> words, bool marked, base::Instant now) {
  if (packet.chunk.signature != sum.options.id.signature) {
    ++core_.counters.contradicting;
    core_.events.push_back(UnexpectedMessage{{.operation = packet.chunk.operation,
                                              .signature = packet.chunk.signature,
                                              .piece = packet.chunk.piece,
                                              .source = packet.source},
                                             true});
    return false;
  }
  const bool is_about_all = packet.kind == SumKind::kWant && packet.chunk.chunk == kAllChunks;
  if (!is_about_all && packet.chunk.chunk >= sum.chunks.size()) {
    ++core_.counters.contradicting;
  } else if (is_owner(sum) && is_part(packet)) {
    return on_part(sum, packet, words, marked, now);
  } else if (is_owner(sum) && packet.kind == SumKind::kWant) {
    on_want(sum, packet, now);
  } else if (!is_owner(sum) && packet.kind == SumKind::kResult) {
    return on_result(sum, packet, words, marked, now);
  } else if (!is_owner(sum) && packet.kind == SumKind::kFlush) {
    on_flush(sum, packet, now);
  }
  return false;
}

void SumExchange::on_trimmed(const wire::SumPacket& packet, base::Instant now) {
  ++core_.counters.sums_trimmed;
  Sum* sum = find(packet);
  const std::uint32_t index = packet.chunk.chunk;
  if (sum == nullptr || packet.chunk.signature != sum->options.id.signature ||
      index >= sum->chunks.size() || sum->chunks[index].state == ChunkState::kDone) {
    return;
  }
  if (is_owner(*sum) && is_part(packet)) {
    on_trimmed_part(*sum, packet, now);
  } else if (!is_owner(*sum) && packet.kind == SumKind::kResult) {
    on_trimmed_result(*sum, index, now);
  }
}

void SumExchange::on_timer(std::uint32_t slot, base::Instant now) {
  const auto found = sums_.find(slot);
  if (found == sums_.end()) {
    return;
  }
  Sum& sum = *found->second;
  sum.armed = kNever;
  if (!is_owner(sum)) {
    request_results(sum, now);
  } else if (sum.has_all()) {
    remind(sum, now);
  } else {
    check_missing_parts(sum, now);
  }
}

bool SumExchange::poll(base::Instant now, Transmission& out) {
  while (!finished_.empty()) {
    const SumId id = finished_.front();
    finished_.pop_front();
    if (address({.kind = SumKind::kWant, .chunk = kAllChunks, .to = id.owner}, id, 0, now, out)) {
      return true;
    }
  }
  for (std::size_t turns = work_.size(); turns > 0; --turns) {
    const Work work = work_.front();
    work_.pop_front();
    const auto found = sums_.find(work.slot);
    if (found == sums_.end()) {
      continue;
    }
    if (is_full(work.to)) {
      work_.push_back(work);
      continue;
    }
    if (write(work, *found->second, now, out)) {
      return true;
    }
  }
  return poll_part(now, out);
}

// True if the stream to this rank takes nothing now.
bool SumExchange::is_full(std::uint16_t rank) {
  const Peer* peer = core_.peers.find(rank);
  return peer != nullptr && peer->is_stream && peer->stream != StreamState::kReady;
}

bool SumExchange::address(const Work& work, const SumId& id, std::uint8_t priority,
                          base::Instant now, Transmission& out) {
  Peer* peer = core_.peers.find(work.to);
  if (peer == nullptr) {
    return false;
  }
  const auto kind = static_cast<std::uint8_t>(work.kind);
  const bool is_control = spillway_sum_has_words(kind) == 0;
  // Parts and first results take one path, by which switches know ranks; repairs take any.
  const std::uint8_t path = work.kind == SumKind::kPart || work.is_first
                                ? std::uint8_t{0}
                                : peer->paths.choose_for_control();
  out.sum = {.kind = work.kind,
             .chunk = {id.operation, id.signature, id.owner, id.piece, work.chunk},
             .ranks = work.ranks,
             .recipients = {},
             .job = core_.config.job,
             .epoch = core_.config.epoch,
             .source = core_.config.rank,
             .destination = work.to,
             .priority = is_control ? std::uint8_t{0} : priority,
             .importance = is_control ? std::uint8_t{0} : std::uint8_t{SPILLWAY_IMPORTANCE_MARKED},
             .path = path,
             .timestamp_us = stamp_us(now)};
  out.route = {.peer = work.to,
               .path = path,
               .dscp = is_control ? std::uint8_t{SPILLWAY_DSCP_CONTROL}
                                  : spillway_dscp_of_priority(priority),
               .ecn = SPILLWAY_ECN_ECT0,
               .is_control = is_control,
               .carrier = peer->control_carrier()};
  ++core_.counters.sums_sent;
  core_.counters.sums_sent_bytes += spillway_sum_packet_size(kind);
  return true;
}

bool SumExchange::write(const Work& work, const Sum& sum, base::Instant now, Transmission& out) {
  const SumOptions& options = sum.options;
  if (!address(work, options.id, options.priority, now, out)) {
    return false;
  }
  wire::SumPacket& packet = out.sum;
  packet.urgency = options.urgency;
  packet.need = options.need;
  if (!out.route.is_control) {
    packet.words = words_of(sum, work.chunk);
  }
  if (work.kind == SumKind::kPart || work.kind == SumKind::kRetransmit) {
    packet.ranks = RankSet::of(core_.config.rank);
  } else if (work.kind == SumKind::kResult) {
    packet.ranks = options.ranks[work.chunk];
    packet.recipients = work.ranks;
    packet.marks =
        static_cast<std::uint8_t>((work.ranks.size() > 1 ? SPILLWAY_SUM_MULTIPLY : 0) |
                                  (sum.chunks[work.chunk].congested ? SPILLWAY_SUM_CONGESTED : 0));
  }
  return true;
}

std::size_t SumExchange::memory_bytes() const {
  std::size_t bytes = work_.size() * sizeof(Work) + early_.size() * sizeof(Early);
  for (const auto& [slot, sum] : sums_) {
    bytes += sizeof(Sum) + sum->chunks.capacity() * sizeof(Chunk) +
             sum->trim_hints.size() * sizeof(decltype(sum->trim_hints)::value_type);
  }
  return bytes;
}

}  // namespace spillway::transport
