// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "net/stranger_table.h"
#include "net/stream_connection.h"

namespace spillway::net {

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes packet_of(std::size_t size, std::uint8_t first) {
  Bytes packet(size);
  std::iota(packet.begin(), packet.end(), first);
  return packet;
}

void write(FrameWriter& writer, const Bytes& packet) {
  std::copy(packet.begin(), packet.end(), writer.room().begin());
  writer.commit(packet.size());
}

// A reader's result for a stream that arrives in pieces of this size.
std::vector<Bytes> read(FrameReader& reader, base::ByteView stream, std::size_t piece) {
  std::vector<Bytes> packets;
  while (!stream.empty()) {
    base::ByteView bytes = stream.first(std::min(piece, stream.size()));
    stream = stream.subspan(bytes.size());
    while (const auto packet = reader.next(bytes)) {
      packets.emplace_back(packet->begin(), packet->end());
    }
    EXPECT_TRUE(bytes.empty() || reader.is_broken());
  }
  return packets;
}

TEST(FrameStream, PacketsComeBackInWhateverPiecesTheyArrive) {
  const std::vector<Bytes> packets = {packet_of(1, 1), packet_of(SPILLWAY_MAX_PACKET, 2),
                                      packet_of(76, 3), packet_of(4, 4), packet_of(1452, 5)};
  FrameWriter writer;
  for (const Bytes& packet : packets) {
    write(writer, packet);
  }
  for (const std::size_t piece : {1U, 2U, 3U, 5U, 80U, 4096U, 100'000U}) {
    FrameReader reader;
    EXPECT_EQ(read(reader, writer.waiting(), piece), packets) << piece;
    EXPECT_FALSE(reader.is_broken());
  }
}

TEST(FrameStream, ALengthThatCannotBeEndsIt) {
  for (const std::uint32_t length :
       {std::uint32_t{0}, std::uint32_t{SPILLWAY_MAX_PACKET + 1}, UINT32_MAX}) {
    for (const std::size_t piece : {1U, 100U}) {
      FrameWriter writer;
      write(writer, packet_of(10, 1));
      Bytes stream(writer.waiting().begin(), writer.waiting().end());
      stream.resize(stream.size() + 50);
      base::store_le(stream.data() + writer.waiting().size(), length);
      FrameReader reader;
      EXPECT_EQ(read(reader, stream, piece).size(), 1U);
      EXPECT_TRUE(reader.is_broken());
      EXPECT_TRUE(read(reader, writer.waiting(), piece).empty());  // for good
    }
  }
}

TEST(FrameStream, WhatLeavesInPartGoesOnWhereItStopped) {
  FrameWriter writer;
  FrameReader reader;
  std::vector<Bytes> written;
  std::vector<Bytes> came;
  for (std::size_t i = 0; i < 300; ++i) {
    written.push_back(packet_of(1 + i * 37 % 5000, static_cast<std::uint8_t>(i)));
    write(writer, written.back());
    const std::size_t taken = std::min<std::size_t>(writer.waiting().size(), 1 + i * 911 % 4000);
    for (Bytes& packet : read(reader, writer.waiting().first(taken), taken)) {
      came.push_back(std::move(packet));
    }
    writer.sent(taken);
  }
  for (Bytes& packet : read(reader, writer.waiting(), 1000)) {
    came.push_back(std::move(packet));
  }
  EXPECT_EQ(came, written);
}

using State = StreamHandshake::State;

StreamIdentity rank_of_run(std::uint16_t rank, std::uint8_t run = 1, std::uint64_t epoch = 7) {
  StreamIdentity identity{.rank = rank, .epoch = epoch};
  identity.key.bytes[0] = run;
  return identity;
}

// Passes one side's bytes to the other, one at a time.
void talk(StreamHandshake& from, StreamHandshake& to) {
  const std::vector<std::uint8_t> words(from.reply().begin(), from.reply().end());
  from.sent(words.size());
  for (const std::uint8_t& byte : words) {
    to.take({&byte, 1});
  }
}

struct Ends {
  State connecting;
  State answering;
};
Ends greet(const StreamIdentity& connects, std::uint16_t to, const StreamIdentity& answers) {
  StreamHandshake a = StreamHandshake::connecting(connects, to, {1});
  StreamHandshake b = StreamHandshake::answering(answers, {2});
  for (int round = 0; round < 3; ++round) {
    talk(a, b);
    talk(b, a);
  }
  return {a.state(), b.state()};
}

TEST(StreamGreeting, RanksOfARunKnowEachOther) {
  StreamHandshake a = StreamHandshake::connecting(rank_of_run(3), 5, {1});
  StreamHandshake b = StreamHandshake::answering(rank_of_run(5), {2});
  talk(a, b);
  EXPECT_EQ(b.state(), State::kAwaitsProof);
  talk(b, a);
  EXPECT_EQ(a.state(), State::kDone);
  talk(a, b);
  EXPECT_EQ(b.state(), State::kDone);
  EXPECT_EQ(a.peer(), 5);
  EXPECT_EQ(b.peer(), 3);
  EXPECT_EQ(a.wanted() + b.wanted(), 0U);
}

TEST(StreamGreeting, WhoeverHasAnotherKeyEpochOrRankIsRefused) {
  EXPECT_EQ(greet(rank_of_run(3, 2), 5, rank_of_run(5)).connecting, State::kRefused);
  EXPECT_NE(greet(rank_of_run(3, 2), 5, rank_of_run(5)).answering, State::kDone);
  EXPECT_EQ(greet(rank_of_run(3, 1, 8), 5, rank_of_run(5)).answering, State::kRefused);
  EXPECT_EQ(greet(rank_of_run(3), 6, rank_of_run(5)).answering, State::kRefused);
  EXPECT_EQ(greet(rank_of_run(5), 5, rank_of_run(5)).answering, State::kRefused);
}

// Bytes recorded from one greeting fail in another, because its nonces differ.
TEST(StreamGreeting, ARecordedOneDoesNotPass) {
  StreamHandshake a = StreamHandshake::connecting(rank_of_run(3), 5, {1});
  StreamHandshake b = StreamHandshake::answering(rank_of_run(5), {2});
  const std::vector<std::uint8_t> hello(a.reply().begin(), a.reply().end());
  talk(a, b);
  talk(b, a);
  const std::vector<std::uint8_t> proof(a.reply().begin(), a.reply().end());
  StreamHandshake again = StreamHandshake::answering(rank_of_run(5), {9});
  again.take(hello);
  EXPECT_EQ(again.state(), State::kAwaitsProof);
  again.take(proof);
  EXPECT_EQ(again.state(), State::kRefused);
}

TEST(StreamGreeting, GarbageIsRefused) {
  StreamHandshake b = StreamHandshake::answering(rank_of_run(5), {2});
  const std::vector<std::uint8_t> garbage(100, 0x47);
  b.take(garbage);
  EXPECT_EQ(b.state(), State::kRefused);
  EXPECT_TRUE(b.reply().empty());
  b.take(garbage);
  EXPECT_EQ(b.state(), State::kRefused);
}

// ------------------------------------------------------------------ strangers

constexpr base::Instant kNow{base::seconds(100)};

TEST(StrangerTable, StrangersGetAShareOfTheDescriptorsAndOfTheMemory) {
  EXPECT_EQ(StrangerTable::most_of(1024, 1024), 128U);
  EXPECT_EQ(StrangerTable::most_of(UINT64_MAX, 64 * 1024), 1024U);
  EXPECT_EQ(StrangerTable::most_of(0, 1024), StrangerTable::kLeast);
  EXPECT_LE(StrangerTable::most_of(StrangerTable::files_of_process(), 1),
            std::max(StrangerTable::kLeast, StrangerTable::files_of_process() / 2));
}

TEST(StrangerTable, TheOldestSilentOneOfTheMostCrowdedSourceGoesFirst) {
  StrangerTable table(8);
  table.add(1, "a", kNow);
  table.add(2, "b", kNow);
  table.add(3, "b", kNow);
  for (StrangerTable::Id id = 4; id <= 7; ++id) {
    table.add(id, std::to_string(id), kNow);
  }
  EXPECT_TRUE(table.room_for("c", kNow).is_free);
  table.add(8, "8", kNow);
  EXPECT_EQ(table.room_for("c", kNow).evict, 2U);
  table.answered(2);
  EXPECT_EQ(table.room_for("c", kNow).evict, 3U);
  table.remove(3);
  EXPECT_TRUE(table.room_for("c", kNow).is_free);
}

TEST(StrangerTable, WhereEverySourceHasOneTheOldestSilentOneGoes) {
  StrangerTable table(3);
  table.add(1, "a", kNow);
  table.add(2, "b", kNow);
  table.add(3, "c", kNow);
  table.answered(1);
  EXPECT_EQ(table.room_for("d", kNow).evict, 2U);
}

// All sockets of a process share one limit, and strangers at one socket do not close another.
TEST(StrangerTable, BooksOfAProcessShareItsPlaces) {
  StrangerTable::Shared shared{.strangers = 0, .most = 16};
  StrangerTable crowded(64, shared);
  StrangerTable other(64, shared);
  for (StrangerTable::Id id = 1; id <= 16; ++id) {
    ASSERT_TRUE(crowded.room_for(std::to_string(id), kNow).is_free);
    crowded.add(id, std::to_string(id), kNow);
  }
  EXPECT_EQ(crowded.room_for("more", kNow).evict, 1U);
  for (StrangerTable::Id id = 1; id <= StrangerTable::kLeast; ++id) {
    ASSERT_TRUE(other.room_for(std::to_string(id), kNow).is_free);
    other.add(id, std::to_string(id), kNow);
  }
  EXPECT_FALSE(other.room_for("more", kNow).is_free);
  {
    const StrangerTable moved(std::move(crowded));
    EXPECT_EQ(shared.strangers, 16 + StrangerTable::kLeast);
  }
  EXPECT_EQ(shared.strangers, StrangerTable::kLeast);
  EXPECT_TRUE(other.room_for("more", kNow).is_free);
}

// A flooding host harms only itself, even if it says what a rank would.
TEST(StrangerTable, OneSourceHasItsShareAndNoMore) {
  StrangerTable table(8);
  table.add(1, "quiet", kNow);
  table.add(2, "flood", kNow);
  table.add(3, "flood", kNow);
  EXPECT_EQ(table.room_for("flood", kNow).evict, 2U);
  table.answered(2);
  table.answered(3);
  const StrangerTable::Room none = table.room_for("flood", kNow);
  EXPECT_FALSE(none.is_free);
  EXPECT_FALSE(none.evict.has_value());
  EXPECT_TRUE(table.room_for("quiet", kNow).is_free);
  // Answered ones are safe only for a while; then the newest goes.
  EXPECT_EQ(table.room_for("flood", kNow + StrangerTable::kAnsweredGrace).evict, 3U);
}

TEST(StrangerTable, TheOwnerChoosesTheGraceOfTheAnswered) {
  StrangerTable::Shared shared{.strangers = 0, .most = 64};
  StrangerTable table(8, shared, base::milliseconds(20));
  table.add(1, "flood", kNow);
  table.add(2, "flood", kNow);
  table.answered(1);
  table.answered(2);
  EXPECT_FALSE(table.room_for("flood", kNow + base::milliseconds(19)).evict.has_value());
  EXPECT_EQ(table.room_for("flood", kNow + base::milliseconds(20)).evict, 2U);
}

// 200 peers behind one address prove themselves five times later than the grace lasts, and connect
// again and again, one every millisecond. There are 32 places.
TEST(StrangerTable, PeersOfOneAddressThatAnswerLateGetInOneAfterAnother) {
  constexpr StrangerTable::Id kPeers = 200;
  constexpr std::int64_t kAnswerMs = 100;
  constexpr std::int64_t kLimitMs = 10'000;
  StrangerTable::Shared shared{.strangers = 0, .most = 1024};
  StrangerTable table(128, shared, base::milliseconds(20));
  std::set<StrangerTable::Id> has_proved;            // peers
  std::map<StrangerTable::Id, std::int64_t> due_ms;  // peers that are connected
  std::int64_t ms = 0;
  for (; has_proved.size() < kPeers && ms < kLimitMs; ++ms) {
    const base::Instant now = kNow + base::milliseconds(ms);
    std::erase_if(due_ms, [&](const auto& connected) {
      if (connected.second > ms) {
        return false;
      }
      table.remove(connected.first);
      has_proved.insert(connected.first % kPeers);
      return true;
    });
    const auto id = static_cast<StrangerTable::Id>(ms);  // peer ms % kPeers
    if (has_proved.contains(id % kPeers)) {
      continue;
    }
    StrangerTable::Room room = table.room_for("one", now);
    if (room.evict) {
      due_ms.erase(*room.evict);
      table.remove(*room.evict);
      room = table.room_for("one", now);
    }
    if (room.is_free) {
      table.add(id, "one", now);
      table.answered(id);
      due_ms[id] = ms + kAnswerMs;
    }
  }
  EXPECT_EQ(has_proved.size(), kPeers);
}

TEST(StrangerTable, WhereDescriptorsAreUsedUpTheMostCrowdedSourceLosesOne) {
  StrangerTable table(8);
  EXPECT_FALSE(table.first_to_evict(kNow).has_value());
  table.add(1, "quiet", kNow);
  table.add(2, "flood", kNow);
  table.add(3, "flood", kNow);
  table.answered(2);
  EXPECT_EQ(table.first_to_evict(kNow), 3U);
  table.answered(3);
  EXPECT_EQ(table.first_to_evict(kNow), 1U);
  table.answered(1);
  EXPECT_FALSE(table.first_to_evict(kNow).has_value());
  EXPECT_EQ(table.first_to_evict(kNow + StrangerTable::kAnsweredGrace), 3U);
}

}  // namespace

}  // namespace spillway::net
