// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "base/random.h"
#include "transport/datagram_port.h"
#include "transport/sum_exchange.h"

namespace spillway::transport {

namespace {

using wire::RankSet;

// The fate of one datagram on the way.
struct Fate {
  int copies = 1;
  base::Duration delay = base::microseconds(20);
  std::size_t bytes = SIZE_MAX;  // that remain
};

// Ranks joined by a delay line that may lose, duplicate, reorder, cut or change datagrams.
class SumWorld {
 public:
  using Filter = std::function<Fate(std::vector<std::uint8_t>& bytes, std::uint16_t from)>;
  Filter filter = [](std::vector<std::uint8_t>&, std::uint16_t) { return Fate{}; };

  explicit SumWorld(std::uint16_t ranks) {
    wire::RunKey key;
    key.bytes.fill(7);
    for (std::uint16_t rank = 0; rank < ranks; ++rank) {
      EndpointConfig config;
      config.rank = rank;
      ports_.push_back(std::make_unique<DatagramPort>(config, SessionConfig{.key = key}));
    }
    for (std::uint16_t a = 0; a < ranks; ++a) {
      for (std::uint16_t b = 0; b < ranks; ++b) {
        if (a != b) {
          EXPECT_TRUE(ports_[a]->add_peer(b, now_).ok());
        }
      }
      ports_[a]->endpoint().retire_before(0);
    }
    reports.resize(ranks);
    dead.resize(ranks);
  }

  Endpoint& operator[](std::uint16_t rank) { return ports_[rank]->endpoint(); }
  DatagramPort& port(std::uint16_t rank) { return *ports_[rank]; }
  std::uint16_t ranks() const { return static_cast<std::uint16_t>(ports_.size()); }
  base::Instant now() const { return now_; }

  void run(base::Duration limit = base::seconds(3)) {
    const base::Instant end = now_ + limit;
    while (now_ < end && step(end)) {
    }
  }

  std::vector<std::vector<SumReport>> reports;  // by rank
  std::vector<unsigned> dead;

 private:
  struct Flying {
    std::uint16_t to;
    std::vector<std::uint8_t> bytes;
  };

  bool step(base::Instant end) {
    base::Instant next = kNever;
    for (std::uint16_t rank = 0; rank < ranks(); ++rank) {
      send(rank);
      take_events(rank);
      next = std::min(next, ports_[rank]->endpoint().next_timeout());
    }
    next = in_flight_.empty() ? next : std::min(next, in_flight_.begin()->first);
    if (next == kNever) {
      return false;
    }
    now_ = std::max(now_, std::min(next, end));
    while (!in_flight_.empty() && in_flight_.begin()->first <= now_) {
      const Flying flying = std::move(in_flight_.begin()->second);
      in_flight_.erase(in_flight_.begin());
      ports_[flying.to]->on_datagram(flying.bytes, false, now_);
    }
    for (const auto& port : ports_) {
      if (port->endpoint().next_timeout() <= now_) {
        port->endpoint().on_timeout(now_);
      }
    }
    return true;
  }

  void send(std::uint16_t rank) {
    std::vector<std::uint8_t> buffer(SPILLWAY_MAX_PACKET);
    Route route;
    while (const std::size_t size = ports_[rank]->poll_datagram(now_, buffer, route)) {
      std::vector<std::uint8_t> bytes(buffer.begin(),
                                      buffer.begin() + static_cast<std::ptrdiff_t>(size));
      const Fate fate = filter(bytes, rank);
      bytes.resize(std::min(bytes.size(), fate.bytes));
      for (int copy = 0; copy < fate.copies; ++copy) {
        in_flight_.emplace(now_ + fate.delay + base::nanoseconds(100 * ++sent_ % 5000),
                           Flying{route.peer, bytes});
      }
    }
  }

  void take_events(std::uint16_t rank) {
    Event event;
    while (ports_[rank]->endpoint().poll_event(event)) {
      if (const auto* report = std::get_if<SumReport>(&event)) {
        reports[rank].push_back(*report);
      }
      dead[rank] += std::holds_alternative<PeerDead>(event) ? 1 : 0;
    }
  }

  base::Instant now_;
  std::uint64_t sent_ = 0;
  std::vector<std::unique_ptr<DatagramPort>> ports_;
  std::multimap<base::Instant, Flying> in_flight_;
};

// Every rank's part of one sum: word i of rank r is r + 1 + 1000 i.
struct Parts {
  Parts(std::uint16_t ranks, std::uint32_t chunks) : words(ranks), in(ranks) {
    for (std::uint16_t rank = 0; rank < ranks; ++rank) {
      words[rank].resize(std::size_t{chunks} * SPILLWAY_SUM_WORDS);
      for (std::size_t i = 0; i < words[rank].size(); ++i) {
        words[rank][i] = part(rank, i);
      }
      in[rank].resize(chunks);
    }
  }
  static std::uint64_t part(std::uint16_t rank, std::size_t i) { return rank + 1U + 1000 * i; }

  SumOptions options(std::uint16_t rank, std::uint16_t owner) {
    const auto ranks = static_cast<std::uint16_t>(words.size());
    RankSet others = RankSet::below(ranks);
    others.erase(owner);
    return {.id = {.operation = 5, .signature = 77, .piece = 2, .owner = owner},
            .contributors = others,
            .recipients = others,
            .need = {static_cast<std::uint8_t>(ranks - 1), 0},
            .words = words[rank],
            .ranks = in[rank]};
  }

  // Every rank has, in every chunk, the sum of exactly the parts it names.
  void expect_right() const {
    for (std::size_t rank = 0; rank < words.size(); ++rank) {
      for (std::size_t i = 0; i < words[rank].size(); ++i) {
        std::uint64_t sum = 0;
        in[rank][i / SPILLWAY_SUM_WORDS].for_each(
            [&](std::uint16_t other) { sum += part(other, i); });
        ASSERT_EQ(words[rank][i], sum) << "rank " << rank << " word " << i;
      }
      EXPECT_EQ(in[rank], in[0]);
    }
  }
  void expect_whole() const {
    for (const RankSet& ranks : in[0]) {
      ASSERT_EQ(ranks.size(), words.size());
    }
  }

  std::vector<std::vector<std::uint64_t>> words;
  std::vector<std::vector<RankSet>> in;
};

void begin_all(SumWorld& world, Parts& parts, std::uint16_t owner) {
  for (std::uint16_t rank = 0; rank < world.ranks(); ++rank) {
    ASSERT_TRUE(world[rank].begin_sum(parts.options(rank, owner), world.now()).ok());
  }
}

void expect_over(const SumWorld& world) {
  for (const std::vector<SumReport>& reports : world.reports) {
    ASSERT_FALSE(reports.empty());
    EXPECT_EQ(reports.back().stage, SumStage::kOver);
  }
}

void expect_whole_sum(const SumWorld& world, const Parts& parts) {
  expect_over(world);
  parts.expect_right();
  parts.expect_whole();
}

TEST(SumExchange, AddsEveryPartOnce) {
  SumWorld world(4);
  Parts parts(4, 300);
  begin_all(world, parts, 1);
  world.run();
  expect_whole_sum(world, parts);
  EXPECT_EQ(world.reports[1].front().stage, SumStage::kFormed);
  EXPECT_EQ(world[0].counters().sums_repeated, 0U);
}

TEST(SumExchange, SurvivesLossRepetitionAndReordering) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SumWorld world(5);
    base::RandomSequence random(seed);
    world.filter = [&](std::vector<std::uint8_t>&, std::uint16_t) {
      Fate fate;
      fate.copies = random.next_below(10) == 0 ? 0 : random.next_below(20) == 0 ? 2 : 1;
      fate.delay = base::microseconds(20 + static_cast<std::int64_t>(random.next_below(400)));
      return fate;
    };
    Parts parts(5, 100);
    begin_all(world, parts, 3);
    world.run(base::seconds(20));
    expect_whole_sum(world, parts);
  }
}

TEST(SumExchange, PacketsWithoutTheirWordsAreAskedForAgain) {
  SumWorld world(3);
  base::RandomSequence random(3);
  world.filter = [&](std::vector<std::uint8_t>&, std::uint16_t) {
    Fate fate;
    fate.bytes = random.next_below(8) == 0 ? 150 : SIZE_MAX;
    return fate;
  };
  Parts parts(3, 200);
  begin_all(world, parts, 0);
  world.run(base::seconds(10));
  expect_whole_sum(world, parts);
  EXPECT_GT(world[0].counters().sums_trimmed, 0U);
}

bool is_part_of(const std::vector<std::uint8_t>& bytes, std::uint32_t chunk) {
  const auto* header = reinterpret_cast<const spillway_sum_header*>(bytes.data());
  return bytes.size() == SPILLWAY_SUM_PACKET && header->kind == SPILLWAY_SUM_PART &&
         header->common.packet == chunk;
}

// Cuts the first part of this chunk that this rank sends.
SumWorld::Filter cut_once(std::uint16_t rank, std::uint32_t chunk) {
  return [=, is_cut = false](std::vector<std::uint8_t>& bytes, std::uint16_t from) mutable {
    const bool is_it = !is_cut && from == rank && is_part_of(bytes, chunk);
    is_cut |= is_it;
    return Fate{.bytes = is_it ? 150 : SIZE_MAX};
  };
}

// Long before anything but the cut packet tells that the part is lost (20 ms): nothing follows the
// last chunk.
TEST(SumExchange, ACutPartIsAskedForAtOnce) {
  for (const std::uint32_t chunk : {0U, 50U, 99U}) {
    SumWorld world(3);
    unsigned told = 0;
    world.filter = [&, cut = cut_once(2, chunk)](std::vector<std::uint8_t>& bytes,
                                                 std::uint16_t from) {
      const auto* header = reinterpret_cast<const spillway_sum_header*>(bytes.data());
      const bool is_told = bytes.size() == SPILLWAY_SUM_PACKET &&
                           header->kind == SPILLWAY_SUM_RESULT && header->common.packet == chunk &&
                           (header->marks & SPILLWAY_SUM_CONGESTED) != 0;
      told += is_told ? 1 : 0;
      return cut(bytes, from);
    };
    Parts parts(3, 100);
    begin_all(world, parts, 0);
    world.run(base::milliseconds(6));
    expect_whole_sum(world, parts);
    EXPECT_EQ(world.reports[0].back().flushed, 1U) << chunk;
    EXPECT_EQ(world[1].counters().sums_repeated, 0U) << chunk;
    EXPECT_EQ(world[2].counters().sums_repeated, 1U) << chunk;
    EXPECT_EQ(told, 2U) << "contributors learn of the congestion";
  }
}

// A whole window of cut parts, of which none tells its owner that anything was sent.
TEST(SumExchange, AWindowOfCutPartsIsAskedFor) {
  SumWorld world(3);
  world.filter = [&](std::vector<std::uint8_t>& bytes, std::uint16_t from) {
    const auto* header = reinterpret_cast<const spillway_sum_header*>(bytes.data());
    const bool is_cut =
        from == 2 && bytes.size() == SPILLWAY_SUM_PACKET && header->kind == SPILLWAY_SUM_PART;
    return Fate{.bytes = is_cut ? 150 : SIZE_MAX};
  };
  Parts parts(3, 100);
  begin_all(world, parts, 0);
  world.run(base::milliseconds(200));
  expect_whole_sum(world, parts);
  EXPECT_GE(world[2].counters().sums_repeated, 100U);
  EXPECT_LE(world[2].counters().sums_repeated, 110U);
}

// The bound forgives what was lost, not what was not sent yet.
TEST(SumExchange, ACutPartIsAskedForWhileALateRankIsAwaited) {
  SumWorld world(3);
  world.filter = cut_once(2, 3);
  Parts parts(3, 100);
  for (const std::uint16_t rank : {0, 2, 1}) {
    SumOptions options = parts.options(rank, 0);
    options.loss_bound_ppm = 100'000;
    ASSERT_TRUE(world[rank].begin_sum(options, world.now()).ok());
    world.run(base::milliseconds(rank == 2 ? 30 : 0));
  }
  EXPECT_EQ(world[2].counters().sums_repeated, 1U);
  world.run(base::milliseconds(100));
  expect_whole_sum(world, parts);
}

// Somebody off the path who has no key, but knows the names of all chunks, sends headers of packets
// that were cut: parts in the name of every rank to the owner, and results to the others.
struct Forger {
  SumWorld& world;
  std::uint32_t chunks;

  void cut(spillway_sum_kind kind, std::uint16_t from, std::uint16_t to, std::uint32_t chunk) {
    static const SumId id = Parts(2, 1).options(0, 0).id;
    spillway_sum_header header = {};
    header.common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_SUM;
    header.common.source = from;
    header.common.destination = to;
    header.common.operation = wire::low_counter(id.operation);
    header.signature = id.signature;
    header.common.piece = id.piece;
    header.common.packet = static_cast<std::uint16_t>(chunk);
    header.kind = static_cast<std::uint8_t>(kind);
    header.ranks[0] = RankSet::below(world.ranks()).words()[0] & ~1ULL;  // all but the owner
    const base::ByteView bytes(reinterpret_cast<const std::uint8_t*>(&header), sizeof(header));
    world.port(to).on_datagram(bytes, false, world.now());
  }
  void cut_all() {
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
      for (std::uint16_t rank = 1; rank < world.ranks(); ++rank) {
        cut(SPILLWAY_SUM_PART, rank, 0, chunk);
        cut(SPILLWAY_SUM_RESULT, 0, rank, chunk);
      }
    }
  }
  void run(base::Duration time) {
    for (const base::Instant end = world.now() + time; world.now() < end;) {
      cut_all();
      const base::Instant before = world.now();
      world.run(base::microseconds(500));
      if (world.now() == before) {
        return;  // nothing is under way
      }
    }
  }
};

void begin_bounded(SumWorld& world, Parts& parts, std::uint16_t rank) {
  SumOptions options = parts.options(rank, 0);
  options.loss_bound_ppm = 100'000;
  ASSERT_TRUE(world[rank].begin_sum(options, world.now()).ok());
}

TEST(SumExchange, ForgedCutPacketsLoseNoParts) {
  constexpr std::uint32_t kChunks = 300;
  SumWorld world(3);
  Parts parts(3, kChunks);
  Forger forger{world, kChunks};
  begin_bounded(world, parts, 0);
  forger.run(base::milliseconds(20));
  begin_bounded(world, parts, 1);
  forger.run(base::milliseconds(100));
  EXPECT_TRUE(world.reports[0].empty());
  begin_bounded(world, parts, 2);
  forger.run(base::milliseconds(100));
  world.run(base::seconds(5));
  expect_whole_sum(world, parts);
  EXPECT_EQ(world.reports[0].back().partial, 0U);
  EXPECT_TRUE(world.reports[0].back().missing.empty());
  EXPECT_GT(world[0].counters().sums_trimmed, kChunks);
  EXPECT_EQ(world.dead, std::vector<unsigned>(3));
}

// The owner gives up on parts that nobody is known to have sent after a second, but only of chunks
// that somebody has sent. A forger cannot make it believe that they were.
TEST(SumExchange, ForgedCutPacketsDoNotStartTheOwnersPatience) {
  constexpr std::uint32_t kChunks = 300;
  SumWorld world(3);
  Parts parts(3, kChunks);
  begin_bounded(world, parts, 0);
  Forger{world, kChunks}.cut_all();
  world.run(base::seconds(3));
  EXPECT_TRUE(world.reports[0].empty());
  for (const std::uint16_t rank : {std::uint16_t{1}, std::uint16_t{2}}) {
    begin_bounded(world, parts, rank);
  }
  world.run();
  expect_whole_sum(world, parts);
}

TEST(SumExchange, RequestsThatForgedCutPacketsCauseAreFewerAndFewer) {
  SumWorld world(3);
  Parts parts(3, 100);
  begin_bounded(world, parts, 0);
  Forger forger{world, 100};
  for (int i = 0; i < 1000; ++i) {  // 100 ms
    forger.cut(SPILLWAY_SUM_PART, 1, 0, 7);
    forger.cut(SPILLWAY_SUM_PART, 2, 0, 7);
    world.run(base::microseconds(100));
  }
  EXPECT_GT(world[0].counters().flushes_sent, 0U);
  EXPECT_LE(world[0].counters().flushes_sent, 2U * 6);
}

// Nor do they make the owner tell of congestion that there is not.
TEST(SumExchange, ForgedCutPacketsMakeNoRankSendPastItsWindow) {
  constexpr std::uint32_t kChunks = 300;
  SumWorld world(3);
  std::uint32_t sent = 0;  // chunks below this one, by rank 1
  unsigned congested = 0;
  world.filter = [&](std::vector<std::uint8_t>& bytes, std::uint16_t from) {
    const auto* header = reinterpret_cast<const spillway_sum_header*>(bytes.data());
    if (bytes.size() == SPILLWAY_SUM_PACKET) {
      sent = from == 1 ? std::max(sent, header->common.packet + 1U) : sent;
      congested += (header->marks & SPILLWAY_SUM_CONGESTED) != 0 ? 1 : 0;
    }
    return Fate{};
  };
  Parts parts(3, kChunks);
  begin_bounded(world, parts, 0);
  begin_bounded(world, parts, 1);
  world.run(base::milliseconds(1));
  const std::uint32_t window = sent;
  ASSERT_GT(window, 0U);
  ASSERT_LT(window, kChunks);
  Forger{world, kChunks}.run(base::milliseconds(100));
  EXPECT_EQ(sent, window) << "rank 2 has sent nothing, so there are no results to make room";
  EXPECT_GT(world[0].counters().flushes_sent, 0U);
  world.run(base::milliseconds(300));  // until the last request is made
  begin_bounded(world, parts, 2);
  world.run(base::seconds(5));
  expect_whole_sum(world, parts);
  EXPECT_EQ(congested, 0U);
}

// A WANT tells the owner that the chunk's part and all before it were sent.
TEST(SumExchange, ForgedCutResultsCauseOneWantForEachSentPart) {
  SumWorld world(3);
  std::vector<std::uint32_t> wanted;
  world.filter = [&](std::vector<std::uint8_t>& bytes, std::uint16_t from) {
    const auto* header = reinterpret_cast<const spillway_sum_header*>(bytes.data());
    if (from == 1 && bytes.size() == sizeof(spillway_sum_header) &&
        spillway_type_of(bytes[0]) == SPILLWAY_TYPE_SUM && header->kind == SPILLWAY_SUM_WANT) {
      wanted.push_back(header->common.packet);
    }
    return Fate{};
  };
  Parts parts(3, 300);
  begin_bounded(world, parts, 0);
  begin_bounded(world, parts, 1);
  world.run(base::milliseconds(1));
  const std::uint64_t sent = world[1].counters().sums_sent;
  ASSERT_GT(sent, 0U);
  ASSERT_LT(sent, 300U);
  Forger forger{world, 300};
  for (int i = 0; i < 10; ++i) {
    for (std::uint32_t chunk = 0; chunk < 300; ++chunk) {
      forger.cut(SPILLWAY_SUM_RESULT, 0, 1, chunk);
    }
    world.run(base::milliseconds(1));
  }
  std::sort(wanted.begin(), wanted.end());
  ASSERT_EQ(wanted.size(), sent);
  for (std::uint32_t chunk = 0; chunk < sent; ++chunk) {
    EXPECT_EQ(wanted[chunk], chunk);
  }
}

TEST(SumExchange, WhatSomebodyChangedIsNotAdded) {
  SumWorld world(3);
  base::RandomSequence random(4);
  world.filter = [&](std::vector<std::uint8_t>& bytes, std::uint16_t) {
    const bool is_part = bytes.size() == SPILLWAY_SUM_PACKET;
    if (is_part && random.next_below(10) == 0) {
      bytes[sizeof(spillway_sum_header) + random.next_below(SPILLWAY_SUM_WORD_BYTES)] ^= 1;
    }
    return Fate{};
  };
  Parts parts(3, 200);
  begin_all(world, parts, 0);
  world.run(base::seconds(10));
  expect_whole_sum(world, parts);
  EXPECT_GT(world.port(0).faults()[static_cast<std::size_t>(wire::PacketFault::kHeadCheck)], 0U);
}

// As a switch would send it, but naming a rank whose part is not in it.
TEST(SumExchange, ASumThatNamesTooManyIsNotTaken) {
  SumWorld world(3);
  world.filter = [&](std::vector<std::uint8_t>& bytes, std::uint16_t from) {
    auto* header = reinterpret_cast<spillway_sum_header*>(bytes.data());
    if (from == 1 && bytes.size() == SPILLWAY_SUM_PACKET && header->kind == SPILLWAY_SUM_PART) {
      header->ranks[0] |= 1U << 2;
    }
    return Fate{};
  };
  Parts parts(3, 10);
  begin_all(world, parts, 0);
  world.run(base::seconds(10));
  expect_whole_sum(world, parts);
}

TEST(SumExchange, ABoundForgivesPartsThatAreLost) {
  SumWorld world(3);
  unsigned parts_sent = 0;
  world.filter = [&](std::vector<std::uint8_t>& bytes, std::uint16_t from) {
    Fate fate;
    const bool is_part = bytes.size() == SPILLWAY_SUM_PACKET && bytes[32] == SPILLWAY_SUM_PART;
    fate.copies = from == 1 && is_part && ++parts_sent % 10 == 0 ? 0 : 1;
    return fate;
  };
  Parts parts(3, 200);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    SumOptions options = parts.options(rank, 0);
    options.loss_bound_ppm = 100'000;
    ASSERT_TRUE(world[rank].begin_sum(options, world.now()).ok());
  }
  world.run(base::seconds(10));
  expect_over(world);
  parts.expect_right();
  EXPECT_EQ(world.reports[0].back().partial, 20U);
  EXPECT_EQ(world.reports[0].back().missing.at(1), 20U);
}

TEST(SumExchange, PartsThatComeBeforeTheirOwnerBeginsAreKept) {
  SumWorld world(3);
  Parts parts(3, 40);
  for (const std::uint16_t rank : {std::uint16_t{1}, std::uint16_t{2}}) {
    ASSERT_TRUE(world[rank].begin_sum(parts.options(rank, 0), world.now()).ok());
  }
  world.run(base::milliseconds(1));
  ASSERT_TRUE(world[0].begin_sum(parts.options(0, 0), world.now()).ok());
  world.run();
  expect_whole_sum(world, parts);
  EXPECT_EQ(world[1].counters().sums_repeated + world[2].counters().sums_repeated, 0U);
}

// A switch on the way may hold the other parts until the last rank's come.
TEST(SumExchange, ALateRankIsWaitedForAndNothingIsAskedFor) {
  SumWorld world(4);
  Parts parts(4, 100);
  for (const std::uint16_t rank : {std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{2}}) {
    ASSERT_TRUE(world[rank].begin_sum(parts.options(rank, 0), world.now()).ok());
  }
  world.run(base::milliseconds(600));
  ASSERT_TRUE(world[3].begin_sum(parts.options(3, 0), world.now()).ok());
  world.run(base::milliseconds(100));
  expect_whole_sum(world, parts);
  EXPECT_EQ(world[0].counters().flushes_sent, 0U);
  for (std::uint16_t rank = 1; rank < 4; ++rank) {
    EXPECT_EQ(world[rank].counters().sums_repeated, 0U) << rank;
  }
}

// A rank whose part is lost is asked as soon as later parts of all ranks came; for the last chunks,
// as soon as all ranks have asked for their results.
TEST(SumExchange, ALostPartIsAskedForOnceAllHaveSentTheirs) {
  for (const std::uint32_t lost : {50U, 99U}) {
    SumWorld world(3);
    world.filter = [&](std::vector<std::uint8_t>& bytes, std::uint16_t from) {
      const auto* header = reinterpret_cast<const spillway_sum_header*>(bytes.data());
      const bool is_lost = from == 2 && bytes.size() == SPILLWAY_SUM_PACKET &&
                           header->kind == SPILLWAY_SUM_PART && header->common.packet == lost;
      return Fate{.copies = is_lost ? 0 : 1};
    };
    Parts parts(3, 100);
    begin_all(world, parts, 0);
    world.run(base::milliseconds(100));
    expect_whole_sum(world, parts);
    EXPECT_EQ(world.reports[0].back().flushed, 1U) << lost;
    EXPECT_EQ(world.reports[0].back().alone, 200U) << lost;
    EXPECT_EQ(world[2].counters().sums_repeated, 1U) << lost;
  }
}

// Every packet of a sum is replayed to each rank, as if from each other, unchanged and readdressed:
// while the sum is under way, and after its end.
TEST(SumExchange, NothingThatIsSentBackOrAsideEndsARank) {
  SumWorld world(3);
  std::vector<std::vector<std::uint8_t>> heard;
  world.filter = [&](std::vector<std::uint8_t>& bytes, std::uint16_t from) {
    const auto* header = reinterpret_cast<const spillway_sum_header*>(bytes.data());
    const bool is_lost = from == 2 && bytes.size() == SPILLWAY_SUM_PACKET &&
                         header->kind == SPILLWAY_SUM_PART && header->common.packet == 7;
    if (spillway_type_of(bytes[0]) == SPILLWAY_TYPE_SUM) {
      heard.push_back(bytes);
    }
    return Fate{.copies = is_lost ? 0 : 1};  // so that there is a FLUSH, too
  };
  const auto attack = [&] {
    for (std::vector<std::uint8_t> bytes : std::vector(heard)) {
      auto* header = reinterpret_cast<spillway_sum_header*>(bytes.data());
      for (std::uint16_t from = 0; from < 3; ++from) {
        for (std::uint16_t to = 0; to < 3; ++to) {
          header->common.source = from;
          header->common.destination = to;
          world.port(to).on_datagram(bytes, false, world.now());
        }
      }
    }
  };
  Parts parts(3, 20);
  begin_all(world, parts, 0);
  world.run(base::microseconds(100));
  attack();
  world.run(base::seconds(10));
  attack();
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    world[rank].retire_before(6);
  }
  attack();
  world.run(base::milliseconds(100));
  expect_whole_sum(world, parts);
  EXPECT_EQ(world.dead, std::vector<unsigned>(3));
  EXPECT_GT(world.port(0).faults()[static_cast<std::size_t>(wire::PacketFault::kField)], 0U);
}

// A rank stops in the middle of a sum, and an attacker replays all that it ever sent.
TEST(SumExchange, WhatARankSaidBeforeItStoppedIsNoSignOfLife) {
  for (const std::uint16_t stopped : {std::uint16_t{0}, std::uint16_t{2}}) {
    SumWorld world(3);
    std::vector<std::pair<std::uint16_t, std::vector<std::uint8_t>>> heard;
    bool has_stopped = false;
    world.filter = [&](std::vector<std::uint8_t>& bytes, std::uint16_t from) {
      const auto* header = reinterpret_cast<const spillway_sum_header*>(bytes.data());
      const bool is_sum = spillway_type_of(bytes[0]) == SPILLWAY_TYPE_SUM;
      if (from == stopped && is_sum && !has_stopped) {
        heard.emplace_back(header->common.destination, bytes);
      }
      // The last chunks never get through, so that the sum does not end.
      return Fate{
          .copies =
              (is_sum && header->common.packet > 90) || (has_stopped && from == stopped) ? 0 : 1};
    };
    Parts parts(3, 100);
    begin_all(world, parts, 0);
    world.run(base::milliseconds(50));
    has_stopped = true;
    ASSERT_FALSE(heard.empty());
    const std::uint16_t waiting = stopped == 0 ? 1 : 0;
    const base::Instant end = world.now() + EndpointConfig().exchange.peer_timeout * 2;
    while (world.dead[waiting] == 0 && world.now() < end) {
      for (const auto& [to, bytes] : heard) {
        world.port(to).on_datagram(bytes, false, world.now());
      }
      world.run(base::milliseconds(100));
    }
    EXPECT_EQ(world.dead[waiting], 1U) << "rank " << stopped;
  }
}

// Ranks that wait for a slow one hear no news of it, and ask.
TEST(SumExchange, ARankThatHasNothingToSendIsNotTakenForDead) {
  SumWorld world(3);
  Parts parts(3, 20);
  for (const std::uint16_t rank : {std::uint16_t{0}, std::uint16_t{1}}) {
    ASSERT_TRUE(world[rank].begin_sum(parts.options(rank, 0), world.now()).ok());
  }
  world.run(EndpointConfig().exchange.peer_timeout * 4);
  EXPECT_EQ(world.dead, std::vector<unsigned>(3));
  ASSERT_TRUE(world[2].begin_sum(parts.options(2, 0), world.now()).ok());
  world.run();
  expect_whole_sum(world, parts);
}

TEST(SumExchange, SaysWhatIsWrongWithASum) {
  SumWorld world(2);
  Parts parts(2, 4);
  SumOptions options = parts.options(0, 0);
  options.words = options.words.first(10);
  EXPECT_FALSE(world[0].begin_sum(options, world.now()).ok());
  options = parts.options(0, 0);
  options.recipients.insert(0);
  EXPECT_FALSE(world[0].begin_sum(options, world.now()).ok());
  options = parts.options(0, 0);
  options.contributors.insert(9);
  EXPECT_NE(world[0].begin_sum(options, world.now()).message().find("rank 9"), std::string::npos);
  ASSERT_TRUE(world[0].begin_sum(parts.options(0, 0), world.now()).ok());
  EXPECT_FALSE(world[0].begin_sum(parts.options(0, 0), world.now()).ok());
  world[0].withdraw_sum(parts.options(0, 0).id);
  EXPECT_TRUE(world[0].begin_sum(parts.options(0, 0), world.now()).ok());
}

}  // namespace

namespace {

using wire::RankSet;

TEST(SumProgress, WhatOneRankHasNotSentWasNotSentByAll) {
  SumProgress progress(RankSet::below(3));
  EXPECT_EQ(progress.sent_by_all(), 0U);
  progress.note(RankSet::of(0), 7);
  progress.note(RankSet::of(1), 4);
  EXPECT_EQ(progress.sent_by_all(), 0U);
  EXPECT_EQ(progress.sent_by(1), 5U);
  EXPECT_EQ(progress.sent_by(2), 0U);
  progress.note(RankSet::of(2), 5);
  EXPECT_EQ(progress.sent_by_all(), 5U);
}

TEST(SumProgress, ASumTellsOfAllItsRanksAndNothingGoesBack) {
  SumProgress progress(RankSet::below(3));
  progress.note(RankSet::below(3), 9);
  EXPECT_EQ(progress.sent_by_all(), 10U);
  progress.note(RankSet::below(3), 2);
  EXPECT_EQ(progress.sent_by_all(), 10U);
}

TEST(SumProgress, WhoContributesNothingHasNoSay) {
  SumProgress progress(RankSet::below(2));
  progress.note(RankSet::of(5), 100);
  progress.note(RankSet::below(2), 0);
  EXPECT_EQ(progress.sent_by_all(), 1U);
}

}  // namespace

}  // namespace spillway::transport
