// SPDX-License-Identifier: Apache-2.0
//
// The small parts of an endpoint, each on its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/random.h"
#include "transport/core.h"
#include "transport/credit.h"
#include "transport/message_table.h"
#include "transport/receiver.h"
#include "transport/sender.h"

namespace spillway::transport {
namespace {

TEST(LossPolicy, AllowsNoMoreThanTheBound) {
  EXPECT_EQ(LossPolicy{.loss_bound_ppm = 10'000}.allowed_missing(99), 0U);
  EXPECT_EQ(LossPolicy{.loss_bound_ppm = 10'000}.allowed_missing(100), 1U);
  EXPECT_EQ(LossPolicy{.loss_bound_ppm = 0}.allowed_missing(65'536), 0U);
  EXPECT_EQ(LossPolicy{.loss_bound_ppm = 1'000'000}.allowed_missing(65'536), 65'536U);
}

TEST(MessageTable, AgreesWithAMapUnderRandomUse) {
  MessageTable<int> table(500);
  std::map<std::uint32_t, std::uint32_t> slots;  // operation -> slot
  base::RandomSequence random(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto operation = static_cast<std::uint32_t>(random.next_below(800));
    const MessageKey key{
        {.operation = operation, .signature = static_cast<std::uint16_t>(operation * 7)}, 3};
    const auto known = slots.find(operation);
    ASSERT_EQ(table.find(key), known == slots.end() ? table.kNoSlot : known->second);
    if (known != slots.end()) {
      ASSERT_EQ(table[known->second], static_cast<int>(operation));
      table.erase(known->second);
      slots.erase(known);
    } else if (!table.is_full()) {
      const std::uint32_t slot = table.insert(key);
      table[slot] = static_cast<int>(operation);
      slots[operation] = slot;
    }
    ASSERT_EQ(table.size(), slots.size());
  }
  EXPECT_GT(slots.size(), 300U);
}

TEST(MessageTable, TellsPeersPhasesAndSourcesApart) {
  MessageTable<int> table(10);
  const wire::MessageId id{.operation = 1, .signature = 2, .piece = 3, .source = 4};
  table.insert({id, 1});
  EXPECT_EQ(table.find({id, 2}), table.kNoSlot);
  wire::MessageId other = id;
  other.phase = wire::Phase::kGather;
  EXPECT_EQ(table.find({other, 1}), table.kNoSlot);
  other = id;
  other.source = 5;
  EXPECT_EQ(table.find({other, 1}), table.kNoSlot);
}

TEST(ReplayWindow, AcceptsEachNumberOnceInAnyOrder) {
  ReplayWindow window;
  EXPECT_FALSE(window.accept(0));
  EXPECT_TRUE(window.accept(5));
  EXPECT_TRUE(window.accept(3));
  EXPECT_FALSE(window.accept(5));
  EXPECT_FALSE(window.accept(3));
  EXPECT_TRUE(window.accept(300));
  EXPECT_FALSE(window.accept(5));   // fell out of the window
  EXPECT_FALSE(window.accept(44));  // too old to tell
  EXPECT_TRUE(window.accept(45));
  EXPECT_TRUE(window.accept(1'000'000));
  EXPECT_FALSE(window.accept(300));
  EXPECT_TRUE(window.accept(UINT32_MAX));
  EXPECT_FALSE(window.accept(UINT32_MAX));
}

TEST(ReplayWindow, AgreesWithASetUnderRandomOrder) {
  ReplayWindow window;
  std::set<std::uint32_t> seen;
  base::RandomSequence random(2);
  std::uint32_t newest = 0;
  for (int i = 0; i < 100'000; ++i) {
    const auto sequence = static_cast<std::uint32_t>(1 + i / 2 + random.next_below(400));
    const bool fresh = sequence + std::uint64_t{ReplayWindow::kWidth} > newest;
    ASSERT_EQ(window.accept(sequence), fresh && seen.insert(sequence).second) << sequence;
    newest = std::max(newest, sequence);
  }
}

TEST(PacketLedger, CountsEachPacketOnceAndKeepsTheLongestCopy) {
  PacketLedger ledger(4, 16, 3);
  using Entry = PacketLedger::Entry;
  EXPECT_EQ(ledger.record(0, 2, true), Entry::kTooFew);
  EXPECT_EQ(ledger.delivered(), 0U);
  EXPECT_EQ(ledger.record(0, 5, true), Entry::kNew);
  EXPECT_EQ(ledger.record(0, 5, true), Entry::kDuplicate);
  EXPECT_EQ(ledger.record(0, 16, true), Entry::kImproved);
  EXPECT_EQ(ledger.record(0, 3, true), Entry::kDuplicate);
  EXPECT_EQ(ledger.delivered(), 1U);
  EXPECT_EQ(ledger.whole(), 1U);
  EXPECT_EQ(ledger.important_delivered(), 1U);
  EXPECT_EQ(ledger.missing(), 3U);
}

TEST(PacketLedger, ShrinksUnlessALaterPacketHasCome) {
  PacketLedger ledger(10, 8, 1);
  ledger.record(2, 8, false);
  ledger.record(5, 8, false);
  EXPECT_FALSE(ledger.shorten(5));
  EXPECT_EQ(ledger.missing(), 8U);
  EXPECT_TRUE(ledger.shorten(6));
  EXPECT_EQ(ledger.packets(), 6U);
  EXPECT_EQ(ledger.missing(), 4U);
}

TEST(PacketLedger, BitmapsCoverExactlyWhatIsMissing) {
  const std::uint32_t packets = 40'000;
  PacketLedger ledger(packets, 16, 1);
  base::RandomSequence random(4);
  std::set<std::uint32_t> missing;
  for (std::uint32_t packet = 0; packet < packets; ++packet) {
    const bool hole = packet < 9000 || packet > 30'000;
    if (hole && random.next_below(50) == 0) {
      missing.insert(packet);
    } else {
      ledger.record(packet, 16, false);
    }
  }
  wire::BitmapRange range;
  std::set<std::uint32_t> told;
  std::uint32_t from = 0;
  int ranges = 0;
  while (ledger.next_missing_range(from, range)) {
    for (std::uint32_t packet = range.first; packet < range.first + range.count; ++packet) {
      if (!range.delivered(packet)) {
        told.insert(packet);
      }
    }
    from = range.first + range.count;
    ++ranges;
  }
  EXPECT_EQ(told, missing);
  EXPECT_LE(ranges, 4);  // whole stretches that arrived are not mentioned
}

TEST(SendOrder, IsAPermutationWithNeighboursFarApart) {
  for (const std::uint32_t packets : {1U, 2U, 3U, 10U, 64U, 1000U, 17'900U, 65'536U}) {
    const SendOrder order(packets);
    std::vector<bool> seen(packets);
    for (std::uint32_t position = 0; position < packets; ++position) {
      const std::uint32_t packet = order.packet_at(position);
      ASSERT_LT(packet, packets);
      ASSERT_FALSE(seen[packet]);
      seen[packet] = true;
    }
    if (packets >= 1000) {
      // The last percent leaves out no run of neighbours.
      std::set<std::uint32_t> tail;
      for (std::uint32_t position = packets - packets / 100; position < packets; ++position) {
        tail.insert(order.packet_at(position));
      }
      for (const std::uint32_t packet : tail) {
        EXPECT_FALSE(tail.contains(packet + 1)) << packets << " " << packet;
      }
    }
  }
}

wire::ControlPacket bitmap_of(std::uint32_t generation, std::uint32_t packets,
                              const std::set<std::uint32_t>& missing, std::uint32_t allowed) {
  wire::ControlPacket packet;
  packet.type = wire::ControlType::kBitmap;
  packet.generation = generation;
  packet.bitmap.range.first = 0;
  packet.bitmap.range.count = packets;
  packet.bitmap.range.bits.fill(0xFF);
  for (const std::uint32_t index : missing) {
    packet.bitmap.range.bits[index / 8] &= static_cast<std::uint8_t>(~(1U << index % 8));
  }
  packet.bitmap.missing = static_cast<std::uint32_t>(missing.size());
  packet.bitmap.allowed = allowed;
  return packet;
}

constexpr base::Instant kNow{base::milliseconds(1)};

TEST(OutgoingMessage, RepeatsOnlyWhatTheBudgetDoesNotForgive) {
  OutgoingMessage message;
  message.packets = 100;
  message.next_position = 100;
  message.importance = 4;
  message.on_bitmap(bitmap_of(1, 100, {1, 5, 9, 20, 30, 40}, 2), kNow);
  EXPECT_EQ(message.repairs.size(), 5U);  // four that must come, and one in case
  message.on_bitmap(bitmap_of(2, 100, {1, 5}, 2), kNow);
  EXPECT_TRUE(message.repairs.empty());
}

TEST(OutgoingMessage, RepeatsImportantPacketsWhateverTheBudget) {
  OutgoingMessage message;
  message.packets = 100;
  message.next_position = 100;
  message.packet_importance.assign(100, 1);
  message.packet_importance[40] = SPILLWAY_IMPORTANCE_REQUIRED;
  message.on_bitmap(bitmap_of(1, 100, {1, 40}, 2), kNow);
  EXPECT_EQ(message.repairs, std::deque<std::uint16_t>{40});
  message.on_bitmap(bitmap_of(2, 100, {1, 2, 3, 40}, 1), kNow);
  EXPECT_EQ(message.repairs[0], 40);
}

TEST(OutgoingMessage, ARepeatingReceiverCannotGrowTheList) {
  OutgoingMessage message;
  message.packets = 50;
  message.next_position = 50;
  std::set<std::uint32_t> all;
  for (std::uint32_t packet = 0; packet < 50; ++packet) {
    all.insert(packet);
  }
  for (int i = 0; i < 100; ++i) {
    message.on_bitmap(bitmap_of(1, 50, all, 0), kNow);
  }
  EXPECT_LE(message.repairs.size(), 50U);
}

TEST(OutgoingMessage, SendsAgainWhatReportsNameBeforeNewPackets) {
  OutgoingMessage message;
  message.packets = 100;
  message.loss.loss_bound_ppm = 0;
  message.order = SendOrder(100);
  wire::DataStamp stamp;
  message.take_next(stamp, kNow);
  const std::uint16_t first = stamp.packet;
  message.take_next(stamp, kNow);
  message.on_gap(first);
  message.on_gap(first);
  EXPECT_EQ(message.repairs.size(), 1U);
  message.take_next(stamp, kNow);
  EXPECT_EQ(stamp.packet, first);
  EXPECT_TRUE(stamp.retransmit);
  message.take_next(stamp, kNow);
  EXPECT_FALSE(stamp.retransmit);
  EXPECT_EQ(message.next_position, 3U);
}

TEST(OutgoingMessage, GapsWithinTheBudgetAreForgivenUnlessRequired) {
  OutgoingMessage message;
  message.packets = 100;
  message.next_position = 100;
  message.loss.loss_bound_ppm = 20'000;  // two packets
  message.packet_importance.assign(100, 4);
  message.packet_importance[40] = SPILLWAY_IMPORTANCE_REQUIRED;
  message.on_gap(1);
  message.on_gap(40);
  EXPECT_EQ(message.repairs, std::deque<std::uint16_t>{40});
  message.on_gap(2);
  EXPECT_EQ(message.repairs, (std::deque<std::uint16_t>{40, 2}));
}

// Its answer may have left before they came.
TEST(OutgoingMessage, ABitmapDoesNotRepeatWhatIsOnItsWay) {
  OutgoingMessage message;
  message.packets = 100;
  message.next_position = 100;
  message.loss.loss_bound_ppm = 0;
  message.on_gap(1);
  wire::DataStamp stamp;
  message.take_next(stamp, kNow);
  message.on_bitmap(bitmap_of(1, 100, {1, 2}, 0), kNow - base::microseconds(1));
  EXPECT_EQ(message.repairs, std::deque<std::uint16_t>{2});
  message.on_bitmap(bitmap_of(2, 100, {1, 2}, 0), kNow);
  EXPECT_EQ(message.repairs, (std::deque<std::uint16_t>{1, 2}));
}

TEST(CreditPacer, GrantsAtTheLinksRateByPriorityInTurn) {
  CreditPacer pacer(base::gigabits_per_second(8), {}, {});
  pacer.enqueue(1, 2);
  pacer.enqueue(2, 2);
  pacer.enqueue(3, 5);
  base::Instant now(base::microseconds(10));
  EXPECT_EQ(pacer.take_turn(), 3U);
  pacer.granted(base::bytes(8000), now);
  EXPECT_EQ(pacer.next_grant() - now, base::microseconds(8));
  EXPECT_EQ(pacer.take_turn(), 1U);
  pacer.enqueue(1, 2);
  EXPECT_EQ(pacer.take_turn(), 2U);
  EXPECT_EQ(pacer.take_turn(), 1U);
  EXPECT_TRUE(pacer.empty());
}

TEST(CreditPacer, EqualsGetEqualSharesHoweverMuchTheyTakeAtATime) {
  CreditPacer pacer(base::gigabits_per_second(8), {}, {});
  std::map<std::uint32_t, std::int64_t> granted;
  pacer.enqueue(1, 2);
  pacer.enqueue(2, 2);
  for (int i = 0; i < 1000; ++i) {
    if (i == 500) {
      pacer.enqueue(3, 2);  // has no claim on what went before
      granted.clear();
    }
    const std::uint32_t peer = pacer.take_turn();
    const std::int64_t bytes = peer == 1 ? 36'000 : 1'500;
    pacer.granted(base::bytes(bytes), {});
    granted[peer] += bytes;
    pacer.enqueue(peer, 2);
  }
  EXPECT_NEAR(static_cast<double>(granted[1]), static_cast<double>(granted[2]), 36'000.0);
  EXPECT_NEAR(static_cast<double>(granted[3]), static_cast<double>(granted[2]), 36'000.0);
}

TEST(CreditPacer, WhoBecomesMoreUrgentMovesUp) {
  CreditPacer pacer(base::gigabits_per_second(8), {}, {});
  pacer.enqueue(1, 0);
  pacer.enqueue(2, 3);
  pacer.raise(1, 0, 4);
  EXPECT_EQ(pacer.take_turn(), 1U);
  EXPECT_EQ(pacer.take_turn(), 2U);
  EXPECT_TRUE(pacer.empty());
}

TEST(CreditPacer, IsDeeperWhereSendersStarveAndShallowerWhereTheLinkIsFull) {
  const CreditPacer::Depths depths{base::microseconds(10), base::milliseconds(1)};
  CreditPacer pacer(base::gigabits_per_second(8), {}, depths);
  for (int i = 0; i < 100; ++i) {
    pacer.on_starved();
  }
  EXPECT_EQ(pacer.depth(), depths.most);
  // A bucket of a millisecond, then at the rate.
  const base::Instant now(base::seconds(1));
  pacer.enqueue(0, 0);
  EXPECT_EQ(pacer.take_turn(), 0U);
  pacer.granted(base::bytes(1'000'000), now);
  EXPECT_EQ(pacer.next_grant(), now);
  pacer.granted(base::bytes(1000), now);
  EXPECT_EQ(pacer.next_grant(), now + base::microseconds(1));
  pacer.on_marked();
  const base::Duration by_mark = depths.most - pacer.depth();
  EXPECT_GT(by_mark, base::Duration());
  EXPECT_EQ(pacer.next_grant(), now + base::microseconds(1) + by_mark);
  for (int i = 0; i < 10'000; ++i) {
    pacer.on_marked();
  }
  EXPECT_LE(pacer.depth(), depths.least * 4);
}

TEST(CreditPacer, SteersTheTrimmedShareToItsTarget) {
  // A link that trims what exceeds its rate: share = 1 - 1 / pace.
  for (const double target : {0.05, 0.2, 0.4}) {
    CreditPacer pacer(base::gigabits_per_second(10), target, {});
    base::RandomSequence random(8);
    int trimmed = 0;
    for (int i = 0; i < 40'000; ++i) {
      const bool is_trimmed = random.next_unit() < 1.0 - 0.8 / pacer.pace();
      trimmed += is_trimmed && i >= 20'000 ? 1 : 0;
      pacer.on_arrival(is_trimmed);
    }
    EXPECT_NEAR(trimmed / 20'000.0, target, target * 0.15);
  }
}

TEST(TimeStamp, OrdersAcrossTheWrap) {
  const base::Instant now(base::seconds(5000));  // past 2^32 microseconds
  EXPECT_EQ(since_stamp(now, stamp_us(now - base::microseconds(70))), base::microseconds(70));
  EXPECT_EQ(since_stamp(now, stamp_us(now + base::microseconds(70))), base::Duration());
}

}  // namespace
}  // namespace spillway::transport
