// SPDX-License-Identifier: Apache-2.0
//
// Tests every row of the table in sum_slots.h, and known ways in which slots go wrong.
#include "switch/dataplane/sum_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "switch/dataplane/sum_testing.h"

namespace spillway::dataplane {
namespace {

constexpr std::uint64_t kLeaseNs = SPILLWAY_SUM_LEASE_US * 1000ULL;

spillway_sum_config slots_with(spillway_sum_policy policy, std::uint32_t slots = 1) {
  return {.slots = slots,
          .lease_us = SPILLWAY_SUM_LEASE_US,
          .pools = 1,
          .policy = static_cast<std::uint8_t>(policy),
          .level = 0,
          .reserved = {}};
}

SumPacket part(std::uint16_t chunk, std::initializer_list<unsigned> ranks, std::uint8_t need) {
  return sum_packet(SPILLWAY_SUM_PART, chunk, ranks, need);
}

SumPacket flush(std::uint16_t chunk, std::initializer_list<unsigned> missing) {
  SumPacket packet = sum_packet(SPILLWAY_SUM_FLUSH, chunk, missing, 0);
  packet.header().common.source = 0;
  packet.header().common.destination = static_cast<std::uint16_t>(*missing.begin());
  return packet;
}

SumPacket urgent(SumPacket packet, std::uint8_t urgency) {
  packet.header().urgency = urgency;
  return packet;
}

std::uint64_t sum_of(std::initializer_list<unsigned> ranks, std::size_t word) {
  std::uint64_t sum = 0;
  for (const unsigned rank : ranks) {
    sum += (rank + 1) * 1000003ULL + word;
  }
  return sum;
}

void expect_sum(const SumPacket& packet, std::initializer_list<unsigned> ranks) {
  spillway_sum_header expected = {};
  put_ranks(expected, ranks);
  EXPECT_EQ(packet.header().ranks[0], expected.ranks[0]);
  EXPECT_EQ(packet.header().ranks[1], expected.ranks[1]);
  std::uint64_t tag = 0;
  for (const unsigned rank : ranks) {
    tag += 1000 + rank;
  }
  EXPECT_EQ(packet.header().tag.low, tag);
  EXPECT_EQ(packet.words[0], sum_of(ranks, 0));
  EXPECT_EQ(packet.words[SPILLWAY_SUM_WORDS - 1], sum_of(ranks, SPILLWAY_SUM_WORDS - 1));
}

constexpr std::uint32_t kForeignPort = 9;  // a port without ranks of the job

class SumSlots : public testing::Test {
 protected:
  void use(spillway_sum_policy policy, std::uint32_t slots = 1) {
    switch_.emplace(slots_with(policy, slots));
  }
  void use(const spillway_sum_config& config) { switch_.emplace(config); }

  void expect(SumPacket& packet, spillway_sum_action action, spillway_sum_outcome outcome,
              std::uint32_t port = 0) {
    const spillway_sum_decision decision = switch_->take(packet, now_, port);
    EXPECT_EQ(decision.action, action);
    EXPECT_EQ(decision.outcome, outcome);
  }
  void expect_gone(SumPacket packet, spillway_sum_outcome outcome) {
    expect(packet, SPILLWAY_SUM_ABSORB, outcome);
  }
  SumPacket expect_on(SumPacket packet, spillway_sum_outcome outcome) {
    expect(packet, SPILLWAY_SUM_FORWARD, outcome);
    return packet;
  }
  // Parts of 500 jobs that a host behind one port has made up.
  void make_up_jobs() {
    for (std::uint16_t job = 100; job < 600; ++job) {
      SumPacket packet = part(0, {1}, 2);
      packet.header().common.job = job;
      switch_->take(packet, now_, kForeignPort);
    }
  }
  const spillway_sum_slot& slot() const { return switch_->slots()[0]; }
  std::uint32_t held(std::uint16_t job = 1) { return switch_->find_job(job, now_)->held; }

  std::optional<SumSwitch> switch_;
  std::uint64_t now_ = 1'000'000'000;
};

// ------------------------------------------------------------------ the table

TEST_F(SumSlots, PartsAreClaimedAddedAndLeaveWhole) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {3}, 3), SPILLWAY_SUM_DID_CLAIM);
  EXPECT_EQ(held(), 1U);
  expect_gone(part(7, {1}, 3), SPILLWAY_SUM_DID_ADD);
  SumPacket last = part(7, {2}, 3);
  expect(last, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_EMIT);
  expect_sum(last, {1, 2, 3});
  EXPECT_EQ(last.header().marks, SPILLWAY_SUM_ADDED);
  EXPECT_EQ(last.header().level, 1);
  EXPECT_EQ(last.header().common.source, 2);
  EXPECT_EQ(slot().state, SPILLWAY_SUM_DONE);
  EXPECT_EQ(held(), 0U);
}

TEST_F(SumSlots, ThoseWholeByThemselvesNeedNoSlot) {
  use(SPILLWAY_SUM_FIRST_COME);
  const SumPacket out = expect_on(part(7, {3}, 1), SPILLWAY_SUM_PAST_ALONE);
  EXPECT_EQ(out.header().level, 1);
  EXPECT_EQ(slot().state, SPILLWAY_SUM_EMPTY);
}

TEST_F(SumSlots, WithoutANeedNothingIsWhole) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1}, 0), SPILLWAY_SUM_DID_CLAIM);
  expect_gone(part(7, {2}, 0), SPILLWAY_SUM_DID_ADD);
  EXPECT_EQ(slot().state, SPILLWAY_SUM_BUSY);
}

TEST_F(SumSlots, MoreThanNeededIsEnough) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1, 2}, 3), SPILLWAY_SUM_DID_CLAIM);
  SumPacket last = part(7, {3, 4}, 3);
  expect(last, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_EMIT);
  EXPECT_TRUE(last.has(1) && last.has(2) && last.has(3) && last.has(4));
}

TEST_F(SumSlots, DuplicatesAreAbsorbedWhileOthersAreMissing) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1}, 3), SPILLWAY_SUM_DID_CLAIM);
  expect_gone(part(7, {1}, 3), SPILLWAY_SUM_DID_DUPLICATE);
  EXPECT_EQ(slot().words[5], sum_of({1}, 5));
}

TEST_F(SumSlots, DuplicatesOfADoneSumMakeItLeaveOnceMore) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1}, 2), SPILLWAY_SUM_DID_CLAIM);
  SumPacket last = part(7, {100}, 2);
  expect(last, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_EMIT);
  SumPacket again = part(7, {1}, 2);
  expect(again, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_REEMIT);
  expect_sum(again, {1, 100});
  EXPECT_EQ(again.header().marks, SPILLWAY_SUM_ADDED);
}

TEST_F(SumSlots, WhatComesToADoneSumAnewGoesOn) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1}, 2), SPILLWAY_SUM_DID_CLAIM);
  SumPacket last = part(7, {2}, 2);
  expect(last, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_EMIT);
  const SumPacket out = expect_on(part(7, {3}, 2), SPILLWAY_SUM_DID_LATE);
  expect_sum(out, {3});
  EXPECT_EQ(slot().words[0], sum_of({1, 2}, 0));
}

TEST_F(SumSlots, PartialOverlapGoesOnMarked) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1, 2}, 4), SPILLWAY_SUM_DID_CLAIM);
  const SumPacket out = expect_on(part(7, {2, 3}, 4), SPILLWAY_SUM_DID_OVERLAP);
  EXPECT_EQ(out.header().marks, SPILLWAY_SUM_OVERLAP);
  EXPECT_EQ(slot().header.fields.ranks[0], 0b110U);
}

TEST_F(SumSlots, OthersCollide) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1}, 3), SPILLWAY_SUM_DID_CLAIM);
  const SumPacket out = expect_on(urgent(part(8, {2}, 3), 255), SPILLWAY_SUM_DID_COLLISION);
  EXPECT_EQ(out.header().marks, SPILLWAY_SUM_COLLISION);
  EXPECT_EQ(out.header().level, 1) << "it has been through this level";
  expect_sum(out, {2});
}

TEST_F(SumSlots, MoreUrgentPartsTakeTheSlot) {
  use(SPILLWAY_SUM_PREEMPTIVE);
  SumPacket first = urgent(part(7, {1}, 3), 10);
  first.header().common.job = 2;
  first.header().signature = 77;
  first.route.bytes[0] = 4711;
  expect_gone(first, SPILLWAY_SUM_DID_CLAIM);
  SumPacket second = urgent(part(8, {2}, 3), 11);
  second.route.bytes[0] = 4712;
  expect(second, SPILLWAY_SUM_SWAP, SPILLWAY_SUM_DID_EVICTION);
  EXPECT_EQ(second.header().common.job, 2);
  EXPECT_EQ(second.header().signature, 77U);
  EXPECT_EQ(second.header().common.packet, 7);
  EXPECT_EQ(second.header().marks,
            SPILLWAY_SUM_ADDED | SPILLWAY_SUM_PARTIAL | SPILLWAY_SUM_EVICTED);
  EXPECT_EQ(second.route.bytes[0], 4711U);
  expect_sum(second, {1});
  EXPECT_EQ(slot().words[0], sum_of({2}, 0));
  EXPECT_EQ(slot().route.bytes[0], 4712U);
  EXPECT_EQ(held(2), 0U);
  EXPECT_EQ(held(1), 1U);
  EXPECT_EQ(switch_->counters().lost_slots, 1U);
}

TEST_F(SumSlots, AnotherShapeOfFrameCannotTakeIt) {
  use(SPILLWAY_SUM_PREEMPTIVE);
  expect_gone(urgent(part(7, {1}, 3), 10), SPILLWAY_SUM_DID_CLAIM);
  SumPacket tagged = urgent(part(8, {2}, 3), 11);
  tagged.route.shape = 18;
  expect_on(tagged, SPILLWAY_SUM_DID_COLLISION);
}

TEST_F(SumSlots, DoneSlotsAreFreeForOthersAtOnce) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1}, 2), SPILLWAY_SUM_DID_CLAIM);
  SumPacket last = part(7, {2}, 2);
  expect(last, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_EMIT);
  expect_gone(part(8, {2}, 2), SPILLWAY_SUM_DID_CLAIM);
}

TEST_F(SumSlots, AFlushIsTurnedRoundWithWhatIsHeld) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1}, 4), SPILLWAY_SUM_DID_CLAIM);
  expect_gone(part(7, {2}, 4), SPILLWAY_SUM_DID_ADD);
  SumPacket out = flush(7, {3, 1, 2});
  expect(out, SPILLWAY_SUM_TURN, SPILLWAY_SUM_DID_FLUSH);
  expect_sum(out, {1, 2});
  EXPECT_EQ(out.header().kind, SPILLWAY_SUM_PART);
  EXPECT_EQ(out.header().common.source, 3) << "of whom it was asked";
  EXPECT_EQ(out.header().common.destination, 0);
  EXPECT_EQ(out.header().marks, SPILLWAY_SUM_ADDED | SPILLWAY_SUM_PARTIAL);
  EXPECT_EQ(held(), 0U);
}

TEST_F(SumSlots, AFlushForADoneSumGetsAllOfIt) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1}, 2), SPILLWAY_SUM_DID_CLAIM);
  SumPacket last = part(7, {2}, 2);
  expect(last, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_EMIT);
  SumPacket out = flush(7, {1, 2});
  expect(out, SPILLWAY_SUM_TURN, SPILLWAY_SUM_DID_FLUSH);
  expect_sum(out, {1, 2});
  EXPECT_EQ(out.header().marks, SPILLWAY_SUM_ADDED);
}

TEST_F(SumSlots, AFlushForNothingSaysSo) {
  use(SPILLWAY_SUM_FIRST_COME);
  const SumPacket none = expect_on(flush(7, {1}), SPILLWAY_SUM_DID_NOT_HELD);
  EXPECT_EQ(none.header().marks, SPILLWAY_SUM_NOT_HELD);
  expect_gone(part(8, {1}, 4), SPILLWAY_SUM_DID_CLAIM);
  expect_on(flush(7, {1}), SPILLWAY_SUM_DID_NOT_HELD);
  EXPECT_EQ(slot().state, SPILLWAY_SUM_BUSY) << "another chunk's";
}

TEST_F(SumSlots, ResultsGoByAndEndTheirSlot) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1}, 4), SPILLWAY_SUM_DID_CLAIM);
  expect_on(sum_packet(SPILLWAY_SUM_RESULT, 9, {1}, 4), SPILLWAY_SUM_DID_RESULT);
  EXPECT_EQ(slot().state, SPILLWAY_SUM_BUSY) << "another chunk's";
  SumPacket result = sum_packet(SPILLWAY_SUM_RESULT, 7, {1}, 4);
  result.header().marks = SPILLWAY_SUM_MULTIPLY;
  result.header().recipients[0] = 6;
  expect(result, SPILLWAY_SUM_TO_MANY, SPILLWAY_SUM_DID_RESULT);
  EXPECT_EQ(slot().state, SPILLWAY_SUM_OVER);
  EXPECT_EQ(held(), 0U);
  expect_gone(part(8, {1}, 4), SPILLWAY_SUM_DID_CLAIM);
}

TEST_F(SumSlots, RepeatsAndWantsTouchNothing) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1}, 2), SPILLWAY_SUM_DID_CLAIM);
  const SumPacket out =
      expect_on(sum_packet(SPILLWAY_SUM_RETRANSMIT, 7, {2}, 2), SPILLWAY_SUM_PAST_REPEAT);
  expect_sum(out, {2});
  expect_on(sum_packet(SPILLWAY_SUM_WANT, 7, {}, 2), SPILLWAY_SUM_PAST_REPEAT);
  EXPECT_EQ(slot().header.fields.ranks[0], 2U);
}

// ------------------------------------------------------------------ epochs

SumPacket of_epoch(SumPacket packet, std::uint16_t epoch) {
  packet.header().common.epoch = epoch;
  return packet;
}

// A stranger's packets cost neither a part nor its place in a sum.
TEST_F(SumSlots, AMadeUpEpochTakesNothingFromAJob) {
  use(SPILLWAY_SUM_FIRST_COME, 1U << 16);
  constexpr std::uint16_t kForged[] = {6, 4, 0x7FFF, 0x8004, 0xFFFF};
  for (std::uint16_t chunk = 0; chunk < 1000; ++chunk) {
    for (unsigned rank = 1; rank <= 2; ++rank) {
      for (const std::uint16_t epoch : kForged) {
        SumPacket forged = of_epoch(part(chunk, {rank}, 3), epoch);
        switch_->take(forged, now_, kForeignPort);
      }
      SumPacket real = of_epoch(part(chunk, {rank}, 2), 5);
      EXPECT_NE(switch_->take(real, now_, rank).outcome, SPILLWAY_SUM_DID_STALE);
      now_ += kLeaseNs / 2000;
    }
  }
  EXPECT_GT(switch_->count(SPILLWAY_SUM_DID_EMIT), 900U) << "but for chunks that share a slot";
}

TEST_F(SumSlots, AnEpochThatNobodyElseConfirmsGivesWayAtOnce) {
  use(SPILLWAY_SUM_FIRST_COME, 16);
  SumPacket forged = of_epoch(part(7, {1}, 2), 6);
  expect(forged, SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_CLAIM, kForeignPort);
  SumPacket first = of_epoch(part(7, {1}, 2), 5);
  expect(first, SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_CLAIM, 1);
  SumPacket second = of_epoch(part(7, {2}, 2), 5);
  expect(second, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_EMIT, 2);
  forged = of_epoch(part(7, {2}, 2), 6);
  expect(forged, SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_DID_STALE, kForeignPort);
}

TEST_F(SumSlots, TheNextEpochBeginsALeaseAfterTheLast) {
  use(SPILLWAY_SUM_FIRST_COME, 16);
  for (unsigned rank = 1; rank <= 2; ++rank) {
    SumPacket last = of_epoch(part(7, {rank}, 3), 5);
    switch_->take(last, now_, rank);
  }
  now_ += kLeaseNs;
  SumPacket early = of_epoch(part(7, {1}, 2), 6);
  expect(early, SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_DID_STALE, 1);
  EXPECT_EQ(early.words[0], sum_of({1}, 0)) << "it goes on as it is";
  now_ += 1;
  SumPacket next = of_epoch(part(7, {1}, 2), 6);
  expect(next, SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_CLAIM, 1);
}

// A rank that was left behind sends alone.
TEST_F(SumSlots, OnePortAloneDoesNotKeepAnEpoch) {
  use(SPILLWAY_SUM_FIRST_COME, 16);
  for (unsigned rank = 1; rank <= 2; ++rank) {
    SumPacket last = of_epoch(part(7, {rank}, 3), 5);
    switch_->take(last, now_, rank);
  }
  for (int i = 0; i < 10; ++i) {
    now_ += kLeaseNs / 4;
    SumPacket left_behind = of_epoch(part(8, {2}, 3), 5);
    switch_->take(left_behind, now_, 2);
  }
  SumPacket next = of_epoch(part(7, {1}, 2), 6);
  expect(next, SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_CLAIM, 1);
}

// ------------------------------------------------------------------ leases, levels, limits

TEST_F(SumSlots, LeasesEnd) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1}, 3), SPILLWAY_SUM_DID_CLAIM);
  now_ += kLeaseNs;
  expect_on(part(8, {2}, 3), SPILLWAY_SUM_DID_COLLISION);
  now_ += 1;
  SumPacket out = part(8, {2}, 3);
  expect(out, SPILLWAY_SUM_SWAP, SPILLWAY_SUM_DID_EXPIRED);
  expect_sum(out, {1});
}

TEST_F(SumSlots, NumbersComeAgainSomeDay) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1}, 2), SPILLWAY_SUM_DID_CLAIM);
  SumPacket last = part(7, {2}, 2);
  expect(last, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_EMIT);
  now_ += kLeaseNs + 1;
  expect_gone(part(7, {1}, 2), SPILLWAY_SUM_DID_CLAIM);
}

// ------------------------------------------------------------------ levels, limits, pools

TEST_F(SumSlots, OtherLevelsPass) {
  spillway_sum_config config = slots_with(SPILLWAY_SUM_FIRST_COME);
  config.level = 1;
  use(config);
  const SumPacket out = expect_on(part(7, {1}, 2), SPILLWAY_SUM_PAST_LEVEL);
  EXPECT_EQ(out.header().level, 0);
  SumPacket rack = part(7, {1, 2}, 0);
  rack.header().level = 1;
  rack.header().need[1] = 4;
  expect_gone(rack, SPILLWAY_SUM_DID_CLAIM);
  SumPacket other = part(7, {3, 4}, 0);
  other.header().level = 1;
  other.header().need[1] = 4;
  expect(other, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_EMIT);
  EXPECT_EQ(other.header().level, 2);
}

TEST_F(SumSlots, JobsHaveLimits) {
  use(SPILLWAY_SUM_FIRST_COME, 64);
  switch_->find_job(1, now_)->limit = 2;
  int claimed = 0;
  for (std::uint16_t chunk = 0; chunk < 20; ++chunk) {
    SumPacket packet = part(chunk, {1}, 2);
    claimed += switch_->take(packet, now_).outcome == SPILLWAY_SUM_DID_CLAIM ? 1 : 0;
  }
  EXPECT_EQ(claimed, 2);
  EXPECT_EQ(held(), 2U);
  EXPECT_GE(switch_->count(SPILLWAY_SUM_PAST_LIMIT), 10U);
}

TEST_F(SumSlots, PoolsAreTheJobsOwn) {
  spillway_sum_config config = slots_with(SPILLWAY_SUM_STATIC, 8);
  config.pools = 0;
  use(config);
  spillway_sum_job* job = switch_->find_job(1, now_);
  job->pool_first = 4;
  job->pool_count = 4;
  for (std::uint16_t chunk = 0; chunk < 4; ++chunk) {
    expect_gone(part(chunk, {1}, 2), SPILLWAY_SUM_DID_CLAIM);
  }
  expect_on(part(4, {1}, 2), SPILLWAY_SUM_DID_COLLISION);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(switch_->slots()[i].state, i < 4 ? SPILLWAY_SUM_EMPTY : SPILLWAY_SUM_BUSY);
  }
  SumPacket homeless = part(0, {1}, 2);
  homeless.header().common.job = 5;
  expect_on(homeless, SPILLWAY_SUM_PAST_LIMIT);
}

TEST_F(SumSlots, EqualPoolsGoByTheJobsNumber) {
  spillway_sum_config config = slots_with(SPILLWAY_SUM_STATIC, 8);
  config.pools = 2;
  use(config);
  for (std::uint16_t job = 0; job < 2; ++job) {
    SumPacket packet = part(3, {1}, 2);
    packet.header().common.job = job;
    const auto offset = switch_->slot_of(packet, now_) - switch_->slots().data();
    EXPECT_EQ(offset / 4, job);
  }
}

TEST_F(SumSlots, MoreJobsThanRowsPass) {
  use(SPILLWAY_SUM_FIRST_COME, 1024);
  for (std::uint16_t job = 0; job < 500; ++job) {
    for (unsigned rank = 1; rank <= 2; ++rank) {
      SumPacket packet = part(0, {rank}, 2);
      packet.header().common.job = job;
      switch_->take(packet, now_, rank);
    }
  }
  EXPECT_GE(switch_->count(SPILLWAY_SUM_PAST_JOBS), 2 * (500U - SPILLWAY_SUM_JOBS));
  now_ += std::uint64_t{SPILLWAY_SUM_JOB_IDLE_S + 2} << 30;
  SumPacket packet = part(1, {1}, 2);
  packet.header().common.job = 499;
  EXPECT_NE(switch_->take(packet, now_).outcome, SPILLWAY_SUM_PAST_JOBS) << "the others are idle";
}

TEST_F(SumSlots, JobsMadeUpAtOnePortKeepNoRow) {
  use(SPILLWAY_SUM_FIRST_COME, 1024);
  make_up_jobs();
  SumPacket first = part(7, {1}, 3);
  expect(first, SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_CLAIM, 1);
  SumPacket second = part(7, {2}, 3);
  expect(second, SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_ADD, 2);
  EXPECT_EQ(held(), 1U);
  make_up_jobs();
  EXPECT_EQ(held(), 1U) << "the row is still the job's";
  SumPacket third = part(7, {3}, 3);
  expect(third, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_EMIT, 3);
}

// A stranger's packets between a job's first and second part, when no row is idle.
TEST_F(SumSlots, JobsMadeUpAtOnePortDoNotDisplaceAJobThatHasJustBegun) {
  use(SPILLWAY_SUM_FIRST_COME, 1024);
  make_up_jobs();
  SumPacket first = part(7, {1}, 3);
  expect(first, SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_CLAIM, 1);
  make_up_jobs();
  // Looks without a packet: find_job() would take a row anew.
  const bool has_row = std::ranges::any_of(switch_->jobs(), [](const spillway_sum_job& job) {
    return job.name == spillway_sum_name(1) && job.held == 1;
  });
  EXPECT_TRUE(has_row);
  SumPacket second = part(7, {2}, 3);
  expect(second, SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_ADD, 2);
  EXPECT_EQ(held(), 1U);
}

// Jobs that all begin to look at row 0, and so compete for the same eight rows.
class SumRows : public testing::Test {
 protected:
  SumRows() {
    for (std::uint32_t name = 1; name <= 0x10000; ++name) {
      if (spillway_sum_first_row(name) == 0) {
        names_.push_back(name);
      }
    }
  }

  std::uint32_t find(std::size_t job, std::uint32_t now_s, std::uint32_t port) {
    return spillway_find_row(&directory_, names_[job], now_s, port);
  }
  // Leaves only row 7.
  void confirm_seven() {
    for (std::uint32_t job = 0; job < SPILLWAY_SUM_PROBES - 1; ++job) {
      EXPECT_EQ(find(job, kBegin, 1), job);
      EXPECT_EQ(find(job, kBegin, 2), job);
    }
  }

  static constexpr std::uint32_t kBegin = 10;
  static constexpr std::size_t kReal = 100;  // of names_
  static constexpr std::size_t kForged = 200;
  static constexpr std::uint32_t kNone = SPILLWAY_SUM_NO_JOB;
  spillway_sum_directory directory_ = {};
  std::vector<std::uint32_t> names_;
};

TEST_F(SumRows, AnUnconfirmedRowHasAGraceAndThenYields) {
  confirm_seven();
  EXPECT_EQ(find(kReal, kBegin, 1), 7U);
  EXPECT_EQ(find(kForged, kBegin + SPILLWAY_SUM_JOB_GRACE_S, kForeignPort), kNone);
  EXPECT_EQ(find(kReal, kBegin + SPILLWAY_SUM_JOB_GRACE_S, 1), 7U) << "it renews no grace";
  EXPECT_EQ(find(kForged, kBegin + SPILLWAY_SUM_JOB_GRACE_S + 1, kForeignPort), 7U);
}

TEST_F(SumRows, AConfirmedRowDoesNotYield) {
  confirm_seven();
  EXPECT_EQ(find(kReal, kBegin, 1), 7U);
  EXPECT_EQ(find(kReal, kBegin, 2), 7U);
  EXPECT_EQ(find(kForged, kBegin + SPILLWAY_SUM_JOB_IDLE_S, kForeignPort), kNone);
}

// Or a stranger could keep a row with ever new jobs.
TEST_F(SumRows, APortThatReplacesItsOwnRowDoesNotRenewItsGrace) {
  confirm_seven();
  EXPECT_EQ(find(kForged, kBegin, kForeignPort), 7U);
  EXPECT_EQ(find(kReal, kBegin + 1, 1), kNone);
  EXPECT_EQ(find(kForged + 1, kBegin + 1, kForeignPort), 7U);
  EXPECT_EQ(find(kForged + 2, kBegin + 2, kForeignPort), 7U);
  EXPECT_EQ(find(kReal, kBegin + 2, 1), 7U);
  EXPECT_EQ(find(kForged, kBegin + 2, kForeignPort), kNone);
  EXPECT_EQ(find(kReal, kBegin + 2, 2), 7U);
}

// A fixed row has no port, and is no reason to take another's.
TEST_F(SumRows, FixedRowsStay) {
  for (std::uint32_t job = 0; job < SPILLWAY_SUM_PROBES; ++job) {
    EXPECT_EQ(find(job, 0, 0), job);
    directory_.seen_s[job] = SPILLWAY_SUM_JOB_FIXED;
  }
  EXPECT_EQ(find(kForged, kBegin, 0), kNone);
  directory_.seen_s[7] = kBegin;
  directory_.since_s[7] = kBegin;
  EXPECT_EQ(find(kForged, kBegin, kForeignPort), kNone);
}

// ------------------------------------------------------------------ hostile and broken packets

TEST_F(SumSlots, CutPacketsAreNeverAdded) {
  use(SPILLWAY_SUM_FIRST_COME);
  SumPacket cut = part(7, {1}, 2);
  cut.is_whole = false;
  expect_on(cut, SPILLWAY_SUM_PAST_CUT);
  EXPECT_EQ(slot().state, SPILLWAY_SUM_EMPTY);
}

TEST_F(SumSlots, PartsOfNobodyPass) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_on(part(7, {}, 2), SPILLWAY_SUM_PAST_INVALID);
}

TEST_F(SumSlots, OtherArgumentsAreAnotherChunk) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1}, 2), SPILLWAY_SUM_DID_CLAIM);
  SumPacket other = part(7, {2}, 2);
  other.header().signature = 1;
  expect_on(other, SPILLWAY_SUM_DID_COLLISION);
}

TEST_F(SumSlots, MoreIsNeededThanThereCanBe) {
  use(SPILLWAY_SUM_FIRST_COME);
  for (unsigned rank = 0; rank < SPILLWAY_SUM_RANKS; ++rank) {
    SumPacket packet = part(7, {rank}, 255);
    EXPECT_EQ(switch_->take(packet, now_).action, SPILLWAY_SUM_ABSORB);
  }
  EXPECT_EQ(slot().state, SPILLWAY_SUM_BUSY);
}

TEST_F(SumSlots, CongestionIsRemembered) {
  use(SPILLWAY_SUM_FIRST_COME);
  SumPacket marked = part(7, {1}, 3);
  expect_gone(marked, SPILLWAY_SUM_DID_CLAIM);
  SumPacket second = part(7, {2}, 3);
  second.header().marks = SPILLWAY_SUM_CONGESTED;
  expect_gone(second, SPILLWAY_SUM_DID_ADD);
  SumPacket last = part(7, {3}, 3);
  expect(last, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_EMIT);
  EXPECT_EQ(last.header().marks, SPILLWAY_SUM_ADDED | SPILLWAY_SUM_CONGESTED);
}

// ------------------------------------------------------------------ known failure modes

// One rank's part was evicted to the owner; the other claims the slot again and waits for the
// first.
TEST_F(SumSlots, SplitBrainEndsWithAFlush) {
  use(SPILLWAY_SUM_PREEMPTIVE);
  expect_gone(urgent(part(7, {1}, 2), 1), SPILLWAY_SUM_DID_CLAIM);
  SumPacket evicting = urgent(part(8, {1}, 2), 9);
  expect(evicting, SPILLWAY_SUM_SWAP, SPILLWAY_SUM_DID_EVICTION);
  expect_sum(evicting, {1});
  SumPacket last = urgent(part(8, {2}, 2), 9);
  expect(last, SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_EMIT);
  expect_gone(urgent(part(7, {2}, 2), 1), SPILLWAY_SUM_DID_CLAIM);
  SumPacket asked = flush(7, {2});
  expect(asked, SPILLWAY_SUM_TURN, SPILLWAY_SUM_DID_FLUSH);
  expect_sum(asked, {2});
  expect_on(part(7, {3}, 2), SPILLWAY_SUM_DID_LATE);
}

// A late duplicate must not hold a slot for a chunk that is over.
TEST_F(SumSlots, ZombiesGetNoSlot) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {1}, 2), SPILLWAY_SUM_DID_CLAIM);
  expect_on(sum_packet(SPILLWAY_SUM_RESULT, 7, {1, 2}, 2), SPILLWAY_SUM_DID_RESULT);
  expect_gone(part(7, {1}, 2), SPILLWAY_SUM_DID_DUPLICATE);
  EXPECT_EQ(held(), 0U);
  expect_gone(part(8, {1}, 2), SPILLWAY_SUM_DID_CLAIM);
}

// A zombie that claims a slot nevertheless loses it as the slot ages, or when the lease ends.
TEST_F(SumSlots, ZombiesAge) {
  use(SPILLWAY_SUM_PREEMPTIVE);
  expect_gone(urgent(part(7, {1}, 2), 200), SPILLWAY_SUM_DID_CLAIM);
  int collisions = 0;
  SumPacket packet = urgent(part(8, {1}, 2), 1);
  while (switch_->take(packet, now_).action == SPILLWAY_SUM_FORWARD) {
    packet = urgent(part(8, {1}, 2), 1);
    ++collisions;
  }
  EXPECT_EQ(collisions, 8) << "200 halves to 0 in eight steps";
  EXPECT_EQ(packet.header().common.packet, 7);
}

// The owner has {1, 2}, and a retransmission has built {2, 3} here: useless, and not to be offered
// again.
TEST_F(SumSlots, OverlapsDoNotLiveOn) {
  use(SPILLWAY_SUM_FIRST_COME);
  expect_gone(part(7, {2}, 3), SPILLWAY_SUM_DID_CLAIM);
  expect_gone(part(7, {3}, 3), SPILLWAY_SUM_DID_ADD);
  const SumPacket asked = expect_on(flush(7, {3}), SPILLWAY_SUM_DID_NOT_HELD);
  EXPECT_EQ(asked.header().marks, SPILLWAY_SUM_NOT_HELD);
  EXPECT_EQ(held(), 0U);
  expect_on(flush(7, {3}), SPILLWAY_SUM_DID_NOT_HELD);
  expect_on(sum_packet(SPILLWAY_SUM_RETRANSMIT, 7, {3}, 3), SPILLWAY_SUM_PAST_REPEAT);
}

// A retransmitted part does not take a slot that waits for only one rank.
TEST_F(SumSlots, RepeatsDoNotTakeWhatIsNearlyWhole) {
  use(SPILLWAY_SUM_PREEMPTIVE);
  expect_gone(urgent(part(7, {1}, 3), 1), SPILLWAY_SUM_DID_CLAIM);
  expect_gone(urgent(part(7, {2}, 3), 1), SPILLWAY_SUM_DID_ADD);
  SumPacket repeated = urgent(part(8, {1}, 3), 9);
  repeated.header().common.flags = SPILLWAY_FLAG_RETRANSMIT;
  expect_on(repeated, SPILLWAY_SUM_DID_COLLISION);
  SumPacket first = urgent(part(8, {1}, 3), 9);
  expect(first, SPILLWAY_SUM_SWAP, SPILLWAY_SUM_DID_EVICTION);
}

// Two chunks of equal urgency share a slot: at most every second collision takes it, and additions
// do not renew its urgency.
TEST_F(SumSlots, EqualsThrashAtMostEverySecondTime) {
  use(SPILLWAY_SUM_PREEMPTIVE);
  unsigned previous = 0;
  for (int i = 0; i < 1000; ++i) {
    SumPacket packet = urgent(
        part(static_cast<std::uint16_t>(7 + i % 2), {static_cast<unsigned>(i / 2 % 100)}, 0), 8);
    const unsigned outcome = switch_->take(packet, now_).outcome;
    EXPECT_FALSE(outcome == SPILLWAY_SUM_DID_EVICTION && previous == SPILLWAY_SUM_DID_EVICTION);
    previous = outcome;
  }
  EXPECT_LE(switch_->count(SPILLWAY_SUM_DID_EVICTION), 500U);
}

TEST_F(SumSlots, NoUrgencyNeverTakes) {
  use(SPILLWAY_SUM_PREEMPTIVE);
  expect_gone(urgent(part(7, {1}, 2), 0), SPILLWAY_SUM_DID_CLAIM);
  for (int i = 0; i < 10; ++i) {
    expect_on(urgent(part(8, {1}, 2), 0), SPILLWAY_SUM_DID_COLLISION);
  }
}

}  // namespace
}  // namespace spillway::dataplane
