// SPDX-License-Identifier: Apache-2.0
//
// The owner's side: which packets it takes, when it asks for missing parts, and which ranks get the
// result.
#include <algorithm>

#include "transport/sum_exchange.h"

namespace spillway::transport {
namespace {

using wire::RankSet;
using wire::SumKind;

// After each sum this share is kept of the results that a switch did not hand on to a rank, so that
// it is tried again some day.
constexpr double kForgiven = 7.0 / 8;

// How far a cut packet may be ahead of what a rank is known to have sent: a contributor's largest
// window. A rank that is asked for a part beyond its own window ignores that.
constexpr std::uint32_t kHintAhead = 1024;

}  // namespace

base::Duration SumExchange::part_timeout() const {
  return part_spread_.is_known() ? clamped(part_spread_.timeout() * 2) : kFirstTimeout;
}

// How long a recipient may take to answer.
base::Duration SumExchange::confirm_timeout() const {
  return confirm_time_.is_known() ? clamped(confirm_time_.timeout() * 2) : kFirstTimeout;
}

RankSet SumExchange::missing_in(const Sum& sum, std::uint32_t chunk) const {
  return sum.options.contributors - sum.options.ranks[chunk];
}

void SumExchange::keep_early(const wire::SumPacket& packet, std::span<const std::uint64_t> words,
                             bool marked) {
  if (packet.chunk.owner != core_.config.rank || core_.retired.contains(packet.chunk.operation)) {
    return;
  }
  ++core_.counters.early;
  if (early_.size() < kMaxEarly) {
    Early& early = early_.emplace_back();
    early.packet = packet;
    std::copy(words.begin(), words.end(), early.words.begin());
    early.marked = marked;
  }
}

void SumExchange::take_early(Sum& sum, base::Instant now) {
  const SumId& id = sum.options.id;
  std::deque<Early> others;
  std::deque<Early> mine;
  for (Early& early : early_) {
    const wire::ChunkName& name = early.packet.chunk;
    const bool is_mine = name.operation == id.operation && name.piece == id.piece;
    if (is_mine || !core_.retired.contains(name.operation)) {
      (is_mine ? mine : others).push_back(early);
    }
  }
  early_ = std::move(others);
  const std::uint32_t slot = sum.slot;
  for (const Early& early : mine) {
    if (sums_.contains(slot)) {
      take(sum, early.packet, early.words, early.marked, now);
    }
  }
}

// Chunks are sent in order: all chunks before one of which something came were sent as well.
void SumExchange::touch(Sum& sum, std::uint32_t chunk, base::Instant now) {
  for (; sum.touched <= chunk; ++sum.touched) {
    Chunk& touched = sum.chunks[sum.touched];
    if (touched.state == ChunkState::kDone) {
      continue;  // of RETRANSMITs alone
    }
    touched.state = ChunkState::kOpen;
    touched.since = now;
    touched.due = now + kBlindTimeout;
    arm(sum, touched.due);
  }
}

void SumExchange::note_sent(Sum& sum, const RankSet& ranks, std::uint32_t index,
                            base::Duration wait, base::Instant now) {
  const std::uint32_t before = sum.progress.sent_by_all();
  sum.progress.note(ranks, index);
  const std::uint32_t until = std::min(sum.progress.sent_by_all(), sum.touched);
  for (std::uint32_t i = std::max(before, sum.oldest); i < until; ++i) {
    Chunk& chunk = sum.chunks[i];
    if (chunk.state == ChunkState::kOpen && chunk.attempts == 0) {
      chunk.since = now;
      chunk.due = std::min(chunk.due, now + wait);
      arm(sum, chunk.due);
    }
  }
}

bool SumExchange::on_part(Sum& sum, const wire::SumPacket& packet,
                          std::span<const std::uint64_t> words, bool marked, base::Instant now) {
  const std::uint32_t index = packet.chunk.chunk;
  // A RETRANSMIT answers a request, which a cut packet may have caused: it shows nothing of the
  // chunks before it.
  if (packet.kind == SumKind::kPart) {
    touch(sum, index, now);
  }
  Chunk& chunk = sum.chunks[index];
  const bool fits = !packet.ranks.empty() && packet.ranks.is_subset_of(sum.options.contributors) &&
                    !packet.ranks.overlaps(sum.options.ranks[index]);
  if (packet.is_marked(SPILLWAY_SUM_ADDED)) {
    note_switch(packet.ranks);
  }
  if (packet.kind == SumKind::kPart) {
    note_sent(sum, packet.ranks, index, part_timeout(), now);
  }
  if (chunk.state == ChunkState::kDone || !fits) {
    ++core_.counters.sums_duplicate;
    return false;
  }
  take_words(sum, index, packet, words);
  const auto cut = sum.trim_hints.find(index);
  // Contributors repeat only what they have sent. The RETRANSMIT came before the PART, so the PART
  // was lost.
  const bool was_cut = cut != sum.trim_hints.end() && packet.kind == SumKind::kRetransmit &&
                       cut->second.ranks.overlaps(packet.ranks);
  chunk.congested |= marked || packet.is_marked(SPILLWAY_SUM_CONGESTED) || was_cut;
  if (missing_in(sum, index).empty()) {
    if (chunk.attempts == 0 && packet.kind == SumKind::kPart) {
      part_spread_.add(std::max(now - chunk.since, base::microseconds(1)));
    }
    close(sum, index, now);
  } else if (chunk.attempts > 0 && packet.ranks.size() > 1) {
    flush(sum, index, now);  // a switch gave what it had, so the rest is not there
  } else if (cut != sum.trim_hints.end() && cut->second.requests > 0 &&
             packet.is_marked(SPILLWAY_SUM_ADDED)) {
    cut->second.due = now;  // a switch gave what it had instead of passing the request on
    arm(sum, now);
  }
  return true;
}

void SumExchange::take_words(Sum& sum, std::uint32_t index, const wire::SumPacket& packet,
                             std::span<const std::uint64_t> words) {
  const std::span<std::uint64_t> total = words_of(sum, index);
  for (std::size_t i = 0; i < total.size(); ++i) {
    total[i] += words[i];
  }
  sum.options.ranks[index] = sum.options.ranks[index] | packet.ranks;
  const unsigned parts = packet.ranks.size();
  (parts > 1 ? sum.report.added : sum.report.alone) += parts;
}

// Ranks whose parts left a slot together are behind one switch.
void SumExchange::note_switch(const RankSet& ranks) {
  RankSet together = ranks;
  std::erase_if(behind_switches_, [&](const RankSet& known) {
    const bool meets = known.overlaps(together);
    together = meets ? together | known : together;
    return meets;
  });
  behind_switches_.push_back(together);
}

void SumExchange::on_want(Sum& sum, const wire::SumPacket& packet, base::Instant now) {
  const std::uint16_t from = packet.source;
  if (packet.chunk.chunk == kAllChunks) {
    on_confirmed(sum, from, now);
    return;
  }
  const std::uint32_t index = packet.chunk.chunk;
  touch(sum, index, now);
  // A WANT overtakes parts, which wait in queues.
  note_sent(sum, RankSet::of(from), index, std::max(part_timeout(), confirm_timeout()), now);
  const Chunk& chunk = sum.chunks[index];
  const bool is_under_way =
      now - chunk.since < (confirm_time_.is_known() ? confirm_time_.timeout() : kFirstTimeout);
  if (chunk.state != ChunkState::kDone || is_under_way) {
    return;
  }
  copies_[from].lost += chunk.multiplied ? 1.0 : 0.0;
  retransmit_result(sum, packet.chunk.chunk, from);
}

void SumExchange::on_confirmed(Sum& sum, std::uint16_t rank, base::Instant now) {
  if (sum.has_all() && !sum.told.contains(rank) && !sum.reminded) {
    confirm_time_.add(now - sum.began);
  }
  sum.told.insert(rank);
  copies_[rank].lost *= kForgiven;
  end_if_confirmed(sum);
}

void SumExchange::retransmit_result(Sum& sum, std::uint16_t chunk, std::uint16_t to) {
  ++sum.report.retransmitted;
  ++core_.counters.sums_repeated;
  queue({.kind = SumKind::kResult, .slot = sum.slot, .chunk = chunk, .to = to, .ranks = {}});
}

bool SumExchange::is_forgiven(const Sum& sum, std::uint32_t index) const {
  const std::uint64_t parts = std::uint64_t{sum.options.contributors.size()} * sum.chunks.size();
  const std::uint64_t allowed = parts * sum.options.loss_bound_ppm / 1'000'000;
  return sum.missing_parts + missing_in(sum, index).size() <= allowed;
}

void SumExchange::resolve(Sum& sum, std::uint32_t index, base::Instant now) {
  if (is_forgiven(sum, index)) {
    close(sum, index, now);
  } else {
    flush(sum, index, now);
  }
}

void SumExchange::flush(Sum& sum, std::uint32_t index, base::Instant now) {
  Chunk& chunk = sum.chunks[index];
  const RankSet missing = missing_in(sum, index);
  const auto cut = sum.trim_hints.find(index);
  if (chunk.attempts == 0) {
    sum.report.flushed += cut == sum.trim_hints.end() || cut->second.requests == 0 ? 1 : 0;
    request_part(sum, index, missing.first());
  } else {
    missing.for_each([&](std::uint16_t rank) { request_part(sum, index, rank); });
  }
  chunk.attempts = static_cast<std::uint8_t>(std::min(chunk.attempts + 1, 255));
  chunk.due = now + std::min(part_timeout() * (1 << std::min<int>(chunk.attempts, 6)), kMaxTimeout);
  arm(sum, chunk.due);
}

void SumExchange::request_part(const Sum& sum, std::uint32_t index, std::uint16_t rank) {
  ++core_.counters.flushes_sent;
  queue({.kind = SumKind::kFlush,
         .slot = sum.slot,
         .chunk = static_cast<std::uint16_t>(index),
         .to = rank,
         .ranks = missing_in(sum, index)});
}

// Other parts of the chunk get kMinTimeout to come: a request takes a switch's sum apart.
void SumExchange::on_trimmed_part(Sum& sum, const wire::SumPacket& packet, base::Instant now) {
  const std::uint32_t index = packet.chunk.chunk;
  RankSet ranks;
  (packet.ranks & missing_in(sum, index)).for_each([&](std::uint16_t rank) {
    if (index < std::max(sum.progress.sent_by(rank), sum.oldest) + kHintAhead) {
      ranks.insert(rank);
    }
  });
  if (ranks.empty()) {
    return;
  }
  TrimHint& cut = sum.trim_hints[index];
  cut.ranks = cut.ranks | ranks;
  cut.due = std::min(cut.due, std::max(now + kMinTimeout, cut.next));
  arm(sum, cut.due);
}

base::Instant SumExchange::request_hinted_parts(Sum& sum, base::Instant now) {
  if (now - sum.hint_requests_since >= kMinTimeout) {
    sum.hint_requests_since = now;
    sum.hint_requests = 0;
  }
  const base::Instant soonest = now + kMinTimeout / 4;  // each call visits all of them
  base::Instant next = kNever;
  for (auto& [index, cut] : sum.trim_hints) {
    if (cut.due > now) {
      next = std::min(next, cut.due);
    } else if (sum.hint_requests >= kHintRequests) {
      next = std::min(next, sum.hint_requests_since + kMinTimeout);
    } else {
      sum.hint_requests += request_hinted_parts_of(sum, index, cut, now);
    }
  }
  return std::max(next, soonest);
}

// Leaves the chunk's attempts and due alone, which decide when it is formed without its missing
// parts. If all have sent theirs and the bound forgives these, that moment is near enough.
unsigned SumExchange::request_hinted_parts_of(Sum& sum, std::uint32_t index, TrimHint& cut,
                                              base::Instant now) {
  cut.due = kNever;
  const RankSet ranks = cut.ranks & missing_in(sum, index);
  const bool is_soon_formed = index < sum.progress.sent_by_all() && is_forgiven(sum, index);
  if (ranks.empty() || is_soon_formed) {
    return 0;
  }
  sum.report.flushed += cut.requests == 0 && sum.chunks[index].attempts == 0 ? 1 : 0;
  ranks.for_each([&](std::uint16_t rank) { request_part(sum, index, rank); });
  cut.requests = static_cast<std::uint8_t>(std::min(cut.requests + 1, 255));
  cut.next = now + std::min(kMinTimeout * (1 << std::min<int>(cut.requests, 7)), kMaxTimeout);
  return ranks.size();
}

void SumExchange::close(Sum& sum, std::uint32_t index, base::Instant now) {
  Chunk& chunk = sum.chunks[index];
  const RankSet missing = missing_in(sum, index);
  // The part did not come in time, so it was lost.
  chunk.congested |= sum.trim_hints.erase(index) > 0 && !missing.empty();
  chunk.state = ChunkState::kDone;
  chunk.since = now;
  sum.missing_parts += missing.size();
  sum.report.partial += missing.empty() ? 0 : 1;
  missing.for_each([&](std::uint16_t rank) {
    sum.report.missing.resize(std::max<std::size_t>(sum.report.missing.size(), rank + 1U));
    ++sum.report.missing[rank];
  });
  send_results(sum, index);
  while (sum.oldest < sum.chunks.size() && sum.chunks[sum.oldest].state == ChunkState::kDone) {
    ++sum.oldest;
  }
  if (++sum.done < sum.chunks.size()) {
    return;
  }
  SumReport formed = sum.report;
  formed.stage = SumStage::kFormed;
  core_.events.push_back(std::move(formed));
  sum.began = now;
  sum.wait = confirm_timeout();
  arm(sum, now + sum.wait);
  end_if_confirmed(sum);
}

void SumExchange::send_results(Sum& sum, std::uint32_t index) {
  RankSet left = sum.options.recipients;
  const auto send = [&](std::uint16_t to, const RankSet& recipients) {
    ++sum.report.sent;
    queue({.kind = SumKind::kResult,
           .slot = sum.slot,
           .chunk = static_cast<std::uint16_t>(index),
           .to = to,
           .is_first = true,
           .ranks = recipients});
  };
  for (const RankSet& known : behind_switches_) {
    RankSet reached = known & left;
    known.for_each([&](std::uint16_t rank) {
      if (copies_[rank].fail()) {
        reached.erase(rank);
      }
    });
    if (reached.size() > 1) {
      reached.for_each([&](std::uint16_t rank) { copies_[rank].on_sent(); });
      send(reached.first(), reached);
      sum.chunks[index].multiplied = true;
      left = left - reached;
    }
  }
  left.for_each([&](std::uint16_t rank) { send(rank, {}); });
}

void SumExchange::check_missing_parts(Sum& sum, base::Instant now) {
  const std::uint32_t slot = sum.slot;
  base::Instant next = kNever;
  for (std::uint32_t i = sum.oldest; i < sum.touched; ++i) {
    Chunk& chunk = sum.chunks[i];
    if (chunk.state == ChunkState::kDone) {
      continue;
    }
    if (chunk.due <= now) {
      resolve(sum, i, now);
    }
    if (!sums_.contains(slot)) {
      return;
    }
    next = chunk.state == ChunkState::kDone ? next : std::min(next, chunk.due);
  }
  next = std::min(next, request_hinted_parts(sum, now));
  if (next != kNever && !sum.has_all()) {
    arm(sum, next);
  }
}

void SumExchange::end_if_confirmed(Sum& sum) {
  if (sum.has_all() && sum.options.recipients.is_subset_of(sum.told)) {
    end(sum);
  }
}

// Sends the last result again to recipients that have not said that they have everything. They
// answer with what they lack.
void SumExchange::remind(Sum& sum, base::Instant now) {
  const auto last = static_cast<std::uint16_t>(sum.chunks.size() - 1);
  (sum.options.recipients - sum.told).for_each([&](std::uint16_t rank) {
    retransmit_result(sum, last, rank);
  });
  sum.reminded = true;
  sum.wait = std::min(sum.wait * 2, kMaxTimeout);
  arm(sum, now + sum.wait);
}

}  // namespace spillway::transport
