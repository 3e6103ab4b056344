// SPDX-License-Identifier: Apache-2.0
#include "wire/sum_datagram.h"

#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace spillway::wire {

// ------------------------------------------------------------------ tags

namespace {

// Both ends of the direction whose keys make draws. No packet has this direction, because no rank
// sends to itself.
constexpr std::uint16_t kNobody = UINT16_MAX;

template <typename Wide>
SumTag as_tag(Wide value) {
  return {static_cast<std::uint64_t>(value), static_cast<std::uint64_t>(value >> 64)};
}

template <typename Factors>
base::Status draw_factors(const RunKey& run, const KeyContext& context, Factors& factors) {
  return derive(run, context, {reinterpret_cast<std::uint8_t*>(factors.data()), sizeof(Factors)});
}

}  // namespace

SumAuth::Keys::~Keys() {
  for (Factors* factors : {&parts, &results}) {
    wipe({reinterpret_cast<std::uint8_t*>(factors->data()), sizeof(Factors)});
  }
}

base::Result<SumAuth> SumAuth::make(const RunKey& run, std::uint64_t epoch) {
  base::Result<PacketAuth> draws = PacketAuth::make(run, {epoch, kNobody, kNobody});
  if (!draws.ok()) {
    return draws.status();
  }
  auto keys = std::unique_ptr<Keys>(new Keys{{}, {}, {}, std::move(draws).value()});
  base::Status status = draw_factors(run, {.use = KeyUse::kSumParts, .epoch = epoch}, keys->parts);
  if (status.ok()) {
    status = draw_factors(run, {.use = KeyUse::kSumResults, .epoch = epoch}, keys->results);
  }
  if (!status.ok()) {
    return status;
  }
  return SumAuth(std::move(keys));
}

SumAuth::Wide SumAuth::product_sum(std::span<const Wide> factors,
                                   std::span<const std::uint64_t> words) {
  Wide sum = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    sum += factors[i] * words[i];
  }
  return sum;
}

// Two 64-bit draws over the chunk's name, a kind of packet, a rank and a set of ranks.
SumAuth::Wide SumAuth::draw(const ChunkName& name, std::uint8_t kind, std::uint16_t rank,
                            const RankSet& ranks) const {
  std::array<std::uint8_t, 40> bytes{};
  base::store_le(bytes.data(), name.operation);
  base::store_le(bytes.data() + 8, name.signature);
  base::store_le(bytes.data() + 16, name.piece);
  base::store_le(bytes.data() + 18, name.chunk);
  base::store_le(bytes.data() + 20, name.owner);
  bytes[22] = static_cast<std::uint8_t>(rank);
  bytes[23] = kind;
  base::store_le(bytes.data() + 24, ranks.words()[0]);
  base::store_le(bytes.data() + 32, ranks.words()[1]);
  const auto half = [&](std::uint8_t which) {
    const Check drawn = keys_->draws.check({.number = name.operation, .path = which}, bytes);
    return base::load_le<std::uint64_t>(drawn.bytes.data());
  };
  return static_cast<Wide>(half(1)) << 64 | half(0);
}

SumTag SumAuth::part(const ChunkName& name, std::uint16_t rank, SumWords words) const {
  return sum(name, RankSet::of(rank), words);
}

SumTag SumAuth::sum(const ChunkName& name, const RankSet& ranks, SumWords words) const {
  Wide tag = product_sum(keys_->parts, words);
  ranks.for_each([&](std::uint16_t rank) { tag += draw(name, SPILLWAY_SUM_PART, rank, {}); });
  return as_tag(tag);
}

SumTag SumAuth::result(const ChunkName& name, const RankSet& ranks, SumWords words) const {
  return as_tag(product_sum(keys_->results, words) +
                draw(name, SPILLWAY_SUM_RESULT, name.owner, ranks));
}

SumTag SumAuth::bare(const ChunkName& name, std::uint8_t kind, std::uint16_t sender,
                     const RankSet& ranks) const {
  return as_tag(draw(name, kind, sender, ranks));
}

// ------------------------------------------------------------------ packets

namespace {

std::uint8_t service_of(const SumPacket& packet) {
  const Phase phase = packet.kind == SumKind::kResult ? Phase::kGather : Phase::kReduce;
  return static_cast<std::uint8_t>(static_cast<unsigned>(phase) << 6 |
                                   unsigned{packet.priority} << 3 | packet.importance);
}

SumTag tag_of(const SumPacket& packet, const SumAuth& auth, std::span<const std::uint64_t> words) {
  switch (packet.kind) {
    case SumKind::kPart:
    case SumKind::kRetransmit:
      return auth.sum(packet.chunk, packet.ranks, words.first<SPILLWAY_SUM_WORDS>());
    case SumKind::kResult:
      return auth.result(packet.chunk, packet.ranks, words.first<SPILLWAY_SUM_WORDS>());
    case SumKind::kFlush:
    case SumKind::kWant:
      break;
  }
  return auth.bare(packet.chunk, static_cast<std::uint8_t>(packet.kind), packet.source,
                   packet.ranks);
}

// Tags cover kind and owner, which imply the direction: parts and requests for results go to
// the owner, everything else comes from it. Without this check, an attacker could send a RESULT
// back to its own owner. A part of no rank, all zeros, has a tag of zero, which needs no key.
bool is_plausible(const spillway_sum_header& header) {
  switch (static_cast<SumKind>(header.kind)) {
    case SumKind::kPart:
    case SumKind::kRetransmit:
      return header.common.destination == header.owner && (header.ranks[0] | header.ranks[1]) != 0;
    case SumKind::kWant:
      return header.common.destination == header.owner;
    case SumKind::kResult:
    case SumKind::kFlush:
      break;
  }
  return header.common.source == header.owner;
}

bool has_words(SumKind kind) {
  return spillway_sum_has_words(static_cast<std::uint8_t>(kind)) != 0;
}

}  // namespace

std::size_t write_sum_packet(const SumPacket& packet, const SumAuth& auth,
                             base::MutableByteView out) {
  const std::size_t size = spillway_sum_packet_size(static_cast<std::uint8_t>(packet.kind));
  SPILLWAY_CHECK(out.size() >= size);
  SPILLWAY_CHECK(packet.words.size() == (has_words(packet.kind) ? SPILLWAY_SUM_WORDS : 0));
  spillway_sum_header header = {};
  header.common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_SUM;
  header.common.flags = packet.kind == SumKind::kRetransmit ? SPILLWAY_FLAG_RETRANSMIT : 0;
  header.common.job = packet.job;
  header.common.epoch = static_cast<std::uint8_t>(packet.epoch);
  header.common.source = packet.source;
  header.common.destination = packet.destination;
  header.common.piece = packet.chunk.piece;
  header.common.operation = low_counter(packet.chunk.operation);
  header.signature = packet.chunk.signature;
  header.common.service = service_of(packet);
  header.common.path = packet.path;
  header.common.packet = packet.chunk.chunk;
  header.common.timestamp_us = low_counter(packet.timestamp_us);
  header.kind = static_cast<std::uint8_t>(packet.kind);
  header.marks = packet.marks;
  header.urgency = packet.urgency;
  header.owner = packet.chunk.owner;
  std::memcpy(header.need, packet.need.data(), sizeof(header.need));
  std::memcpy(header.ranks, packet.ranks.words().data(), sizeof(header.ranks));
  std::memcpy(header.recipients, packet.recipients.words().data(), sizeof(header.recipients));
  header.tag = tag_of(packet, auth, packet.words);
  std::memcpy(out.data(), &header, sizeof(header));
  if (!packet.words.empty()) {
    std::memcpy(out.data() + sizeof(header), packet.words.data(), SPILLWAY_SUM_WORD_BYTES);
  }
  return size;
}

PacketFault read_sum_header(base::ByteView bytes, SumPacket& packet) {
  spillway_sum_header header;
  if (bytes.size() < sizeof(header)) {
    return PacketFault::kTooShort;
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (spillway_version_of(header.common.version_type) != SPILLWAY_WIRE_VERSION) {
    return PacketFault::kVersion;
  }
  if (spillway_type_of(header.common.version_type) != SPILLWAY_TYPE_SUM) {
    return PacketFault::kType;
  }
  if (!spillway_is_valid_sum(&header) || !is_plausible(header)) {
    return PacketFault::kField;
  }
  if (bytes.size() > spillway_sum_packet_size(header.kind)) {
    return PacketFault::kTooLong;
  }
  std::array<std::uint64_t, SPILLWAY_SUM_RANK_WORDS> ranks;
  std::memcpy(ranks.data(), header.ranks, sizeof(header.ranks));
  packet.ranks = RankSet(ranks);
  std::memcpy(ranks.data(), header.recipients, sizeof(header.recipients));
  packet.recipients = RankSet(ranks);
  std::memcpy(packet.need.data(), header.need, sizeof(header.need));
  packet.kind = static_cast<SumKind>(header.kind);
  packet.marks = header.marks;
  packet.urgency = header.urgency;
  packet.chunk = {.operation = header.common.operation,
                  .signature = header.signature,
                  .owner = header.owner,
                  .piece = header.common.piece,
                  .chunk = header.common.packet};
  packet.job = header.common.job;
  packet.epoch = header.common.epoch;
  packet.source = header.common.source;
  packet.destination = header.common.destination;
  packet.priority = spillway_priority_of(header.common.service);
  packet.importance = spillway_importance_of(header.common.service);
  packet.path = header.common.path;
  packet.timestamp_us = header.common.timestamp_us;
  packet.words = {};
  return PacketFault::kNone;
}

bool is_trimmed(base::ByteView bytes, const SumPacket& packet) {
  return bytes.size() < spillway_sum_packet_size(static_cast<std::uint8_t>(packet.kind));
}

PacketFault verify_sum_packet(base::ByteView bytes, const SumAuth& auth, const SumPacket& packet,
                              std::span<std::uint64_t, SPILLWAY_SUM_WORDS> words) {
  if (is_trimmed(bytes, packet)) {
    return PacketFault::kCutInHead;
  }
  if (has_words(packet.kind)) {
    std::memcpy(words.data(), bytes.data() + sizeof(spillway_sum_header), SPILLWAY_SUM_WORD_BYTES);
  }
  const SumTag expected = tag_of(packet, auth, words);
  const base::ByteView received = bytes.subspan(offsetof(spillway_sum_header, tag), sizeof(SumTag));
  // The comparison takes constant time.
  const std::uint64_t difference =
      (expected.low ^ base::load_le<std::uint64_t>(received.data())) |
      (expected.high ^ base::load_le<std::uint64_t>(received.data() + 8));
  return difference == 0 ? PacketFault::kNone : PacketFault::kHeadCheck;
}

}  // namespace spillway::wire
