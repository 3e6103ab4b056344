// SPDX-License-Identifier: Apache-2.0
#include "wire/sum_datagram.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/random.h"

namespace spillway::wire {
namespace {

using Words = std::array<std::uint64_t, SPILLWAY_SUM_WORDS>;

SumAuth auth_of(std::uint8_t secret, std::uint64_t epoch = 3) {
  RunKey key;
  key.bytes.fill(secret);
  return std::move(SumAuth::make(key, epoch)).value();
}

Words words_of(std::uint64_t seed) {
  base::RandomSequence random(seed);
  Words words;
  for (std::uint64_t& word : words) {
    word = random.next_below(std::uint64_t{1} << 61);
  }
  return words;
}

constexpr ChunkName kChunk{
    .operation = 9, .signature = 0xABCDEF, .owner = 2, .piece = 4, .chunk = 77};

bool equal(const SumTag& a, const SumTag& b) {
  return a.low == b.low && a.high == b.high;
}

TEST(SumTag, TagsAddUpAsPartsDo) {
  const SumAuth auth = auth_of(1);
  Words total{};
  SumTag tag{};
  RankSet ranks;
  for (const std::uint16_t rank : {0, 1, 5, 127}) {
    const Words words = words_of(rank);
    for (std::size_t i = 0; i < words.size(); ++i) {
      total[i] += words[i] / 4;
    }
    Words part = words;
    for (std::uint64_t& word : part) {
      word /= 4;
    }
    tag = spillway_add_tags(tag, auth.part(kChunk, rank, part));
    ranks.insert(rank);
  }
  EXPECT_TRUE(equal(tag, auth.sum(kChunk, ranks, total)));
  total[3] += 1;
  EXPECT_FALSE(equal(tag, auth.sum(kChunk, ranks, total)));
  total[3] -= 1;
  ranks.insert(6);
  EXPECT_FALSE(equal(tag, auth.sum(kChunk, ranks, total)));
}

TEST(SumTag, DiffersByChunkRankEpochKeyAndKind) {
  const SumAuth auth = auth_of(1);
  const Words words = words_of(1);
  const SumTag tag = auth.part(kChunk, 1, words);
  EXPECT_TRUE(equal(tag, auth_of(1).part(kChunk, 1, words)));
  EXPECT_FALSE(equal(tag, auth.part(kChunk, 2, words)));
  EXPECT_FALSE(equal(tag, auth_of(2).part(kChunk, 1, words)));
  EXPECT_FALSE(equal(tag, auth_of(1, 4).part(kChunk, 1, words)));
  for (ChunkName other : {ChunkName{10, 0xABCDEF, 2, 4, 77}, ChunkName{9, 0xABCDEE, 2, 4, 77},
                          ChunkName{9, 0xABCDEF, 3, 4, 77}, ChunkName{9, 0xABCDEF, 2, 5, 77},
                          ChunkName{9, 0xABCDEF, 2, 4, 78}}) {
    EXPECT_FALSE(equal(tag, auth.part(other, 1, words)));
  }
  EXPECT_FALSE(equal(tag, auth.result(kChunk, RankSet::of(1), words)));
}

// Words that differ by the modulus of a smaller tag must get different tags.
TEST(SumTag, SeesEveryBitOfAWord) {
  const SumAuth auth = auth_of(1);
  Words words = words_of(1);
  const SumTag tag = auth.part(kChunk, 1, words);
  for (unsigned bit = 0; bit < 64; ++bit) {
    words[11] ^= std::uint64_t{1} << bit;
    EXPECT_FALSE(equal(tag, auth.part(kChunk, 1, words)));
    words[11] ^= std::uint64_t{1} << bit;
  }
  words[11] += (std::uint64_t{1} << 61) - 1;
  EXPECT_FALSE(equal(tag, auth.part(kChunk, 1, words)));
}

SumPacket packet_of(SumKind kind, const Words& words) {
  SumPacket packet;
  packet.kind = kind;
  packet.chunk = kChunk;
  packet.need = {3, 0};
  packet.ranks = RankSet::of(1);
  packet.job = 8;
  packet.epoch = 3;
  packet.source = kind == SumKind::kResult || kind == SumKind::kFlush ? 2 : 1;
  packet.destination = 2;
  packet.priority = 5;
  packet.importance = 4;
  if (spillway_sum_has_words(static_cast<std::uint8_t>(kind))) {
    packet.words = words;
  }
  return packet;
}

TEST(SumDatagram, ComesBackAsItWasWritten) {
  const SumAuth auth = auth_of(1);
  const Words words = words_of(2);
  for (const SumKind kind :
       {SumKind::kPart, SumKind::kRetransmit, SumKind::kFlush, SumKind::kResult, SumKind::kWant}) {
    std::vector<std::uint8_t> bytes(SPILLWAY_MAX_PACKET);
    const SumPacket packet = packet_of(kind, words);
    bytes.resize(write_sum_packet(packet, auth, bytes));
    SumPacket read;
    ASSERT_EQ(read_sum_header(bytes, read), PacketFault::kNone);
    EXPECT_EQ(read.kind, kind);
    EXPECT_EQ(read.ranks, packet.ranks);
    EXPECT_EQ(read.chunk.signature, packet.chunk.signature);
    EXPECT_EQ(read.chunk.chunk, packet.chunk.chunk);
    EXPECT_EQ(read.priority, packet.priority);
    Words came{};
    ASSERT_EQ(verify_sum_packet(bytes, auth, read, came), PacketFault::kNone);
    if (!packet.words.empty()) {
      EXPECT_EQ(came, words);
    }
    read.ranks.insert(7);
    EXPECT_EQ(verify_sum_packet(bytes, auth, read, came), PacketFault::kHeadCheck);
    EXPECT_EQ(verify_sum_packet(bytes, auth_of(9), read, came), PacketFault::kHeadCheck);
  }
}

TEST(SumDatagram, RefusesWhatIsNoSumPacket) {
  const SumAuth auth = auth_of(1);
  const Words words = words_of(2);
  std::vector<std::uint8_t> bytes(SPILLWAY_MAX_PACKET);
  bytes.resize(write_sum_packet(packet_of(SumKind::kPart, words), auth, bytes));
  SumPacket read;
  Words came{};
  EXPECT_EQ(read_sum_header(base::ByteView(bytes).first(87), read), PacketFault::kTooShort);
  const base::ByteView cut = base::ByteView(bytes).first(200);
  ASSERT_EQ(read_sum_header(cut, read), PacketFault::kNone);
  EXPECT_TRUE(is_trimmed(cut, read));
  EXPECT_EQ(verify_sum_packet(cut, auth, read, came), PacketFault::kCutInHead);
  const auto with = [&](std::size_t at, std::uint8_t value) {
    std::vector<std::uint8_t> changed = bytes;
    changed[at] = value;
    return read_sum_header(changed, read);
  };
  EXPECT_EQ(with(0, 0x28), PacketFault::kVersion);
  EXPECT_EQ(with(0, 0x41), PacketFault::kType);
  EXPECT_EQ(with(1, 0x80), PacketFault::kField);
  EXPECT_EQ(with(32, 0), PacketFault::kField);
  EXPECT_EQ(with(32, 6), PacketFault::kField);
  EXPECT_EQ(with(32, SPILLWAY_SUM_WANT), PacketFault::kTooLong);
  EXPECT_EQ(with(37, 1), PacketFault::kField);  // an owner beyond the last rank
}

// Readers index sets of ranks by the source, and its draw covers its low 8 bits only.
TEST(SumDatagram, RefusesASourceBeyondTheLastRank) {
  const SumAuth auth = auth_of(1);
  const Words words = words_of(2);
  for (const SumKind kind :
       {SumKind::kPart, SumKind::kRetransmit, SumKind::kFlush, SumKind::kResult, SumKind::kWant}) {
    std::vector<std::uint8_t> bytes(SPILLWAY_MAX_PACKET);
    bytes.resize(write_sum_packet(packet_of(kind, words), auth, bytes));
    SumPacket read;
    ASSERT_EQ(read_sum_header(bytes, read), PacketFault::kNone);
    spillway_sum_header header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    const std::uint16_t source = header.common.source;
    for (const unsigned beyond :
         {unsigned{SPILLWAY_SUM_RANKS}, SPILLWAY_SUM_RANKS + 63U, 256U + source, 65'535U}) {
      header.common.source = static_cast<std::uint16_t>(beyond);
      std::memcpy(bytes.data(), &header, sizeof(header));
      EXPECT_EQ(read_sum_header(bytes, read), PacketFault::kField) << beyond;
      EXPECT_EQ(read_sum_header(base::ByteView(bytes).first(sizeof(header)), read),
                PacketFault::kField)
          << "cut: " << beyond;
    }
  }
}

TEST(SumDatagram, RefusesWhatGoesAnotherWayThanItsKind) {
  const SumAuth auth = auth_of(1);
  const Words words = words_of(2);
  for (const SumKind kind :
       {SumKind::kPart, SumKind::kRetransmit, SumKind::kFlush, SumKind::kResult, SumKind::kWant}) {
    SumPacket packet = packet_of(kind, words);
    const bool is_from_owner = packet.source == kChunk.owner;
    packet.destination = is_from_owner ? 1 : kChunk.owner;
    std::vector<std::uint8_t> bytes(SPILLWAY_MAX_PACKET);
    bytes.resize(write_sum_packet(packet, auth, bytes));
    SumPacket read;
    ASSERT_EQ(read_sum_header(bytes, read), PacketFault::kNone);
    spillway_sum_header header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    header.common.source = packet.destination;
    header.common.destination = packet.source;
    std::memcpy(bytes.data(), &header, sizeof(header));
    EXPECT_EQ(read_sum_header(bytes, read), PacketFault::kField) << static_cast<int>(kind);
  }
}

// A part of no rank is zero, and so is its tag under any key.
TEST(SumDatagram, RefusesPartsOfNobody) {
  const SumAuth auth = auth_of(1);
  const Words zeros{};
  for (const SumKind kind : {SumKind::kPart, SumKind::kRetransmit}) {
    SumPacket packet = packet_of(kind, zeros);
    packet.ranks = {};
    std::vector<std::uint8_t> bytes(SPILLWAY_MAX_PACKET);
    bytes.resize(write_sum_packet(packet, auth, bytes));
    SumPacket read;
    EXPECT_EQ(read_sum_header(bytes, read), PacketFault::kField);
  }
}

}  // namespace
}  // namespace spillway::wire
