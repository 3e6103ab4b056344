// SPDX-License-Identifier: Apache-2.0
#include "wire/sum_datagram.h"

#include <cstring>

#include "base/check.h"

namespace spillway::wire {
namespace {

std::uint8_t service_of(const SumPacket& packet) {
  const Phase phase = packet.kind == SumKind::kResult ? Phase::kGather : Phase::kReduce;
  return static_cast<std::uint8_t>(static_cast<unsigned>(phase) << 6 |
                                   unsigned{packet.priority} << 3 | packet.importance);
}

SumTag tag_of(const SumPacket& packet, const SumAuth& auth, std::span<const std::uint64_t> words) {
  switch (packet.kind) {
    case SumKind::kPart:
    case SumKind::kRepeat:
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

// Tags cover kind and owner, which imply the direction: parts and questions go to the owner,
// everything else comes from it. Without this check, anybody could pass off a RESULT at its own
// owner. Parts of no rank, all zeros, have a tag of zero, which needs no key.
bool is_plausible(const spillway_sum_header& header) {
  switch (static_cast<SumKind>(header.kind)) {
    case SumKind::kPart:
    case SumKind::kRepeat:
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
  header.common.flags = packet.kind == SumKind::kRepeat ? SPILLWAY_FLAG_RETRANSMIT : 0;
  header.common.job = packet.job;
  header.common.epoch = static_cast<std::uint16_t>(packet.epoch);
  header.common.source = packet.source;
  header.common.destination = packet.destination;
  header.common.piece = packet.chunk.piece;
  header.common.operation = static_cast<std::uint32_t>(packet.chunk.operation);
  header.common.signature = packet.chunk.signature;
  header.common.service = service_of(packet);
  header.common.path = packet.path;
  header.common.packet = packet.chunk.chunk;
  header.common.timestamp_us = packet.timestamp_us;
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
                  .signature = header.common.signature,
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

bool is_cut(base::ByteView bytes, const SumPacket& packet) {
  return bytes.size() < spillway_sum_packet_size(static_cast<std::uint8_t>(packet.kind));
}

PacketFault verify_sum_packet(base::ByteView bytes, const SumAuth& auth, const SumPacket& packet,
                              std::span<std::uint64_t, SPILLWAY_SUM_WORDS> words) {
  if (is_cut(bytes, packet)) {
    return PacketFault::kCutInHead;
  }
  if (has_words(packet.kind)) {
    std::memcpy(words.data(), bytes.data() + sizeof(spillway_sum_header), SPILLWAY_SUM_WORD_BYTES);
  }
  const SumTag expected = tag_of(packet, auth, words);
  const base::ByteView received = bytes.subspan(offsetof(spillway_sum_header, tag), sizeof(SumTag));
  // Constant time.
  const std::uint64_t difference =
      (expected.low ^ base::load_le<std::uint64_t>(received.data())) |
      (expected.high ^ base::load_le<std::uint64_t>(received.data() + 8));
  return difference == 0 ? PacketFault::kNone : PacketFault::kHeadCheck;
}

}  // namespace spillway::wire
