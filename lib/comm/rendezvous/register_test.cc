// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/version.h"
#include "comm/rendezvous/register.h"

namespace spillway::comm {

namespace {

constexpr base::Instant kStart{base::seconds(100)};

Register register_of(std::uint32_t world) {
  return {{.rank = 0, .world = world, .nonce = {1}, .patience = base::seconds(30), .random = {7}},
          {0},
          kStart};
}

Hello hello_of(std::uint32_t rank, std::uint32_t world = 4) {
  return {.nonce = {1},
          .random = {static_cast<std::uint8_t>(100 + rank)},
          .instance = 1000 + rank,
          .world = world,
          .rank = rank,
          .patience = base::seconds(60),
          .left = base::seconds(50),
          .version = base::kVersion,
          .blob = {static_cast<std::uint8_t>(rank)}};
}

std::string objection_to(const Register& list, const Hello& hello) {
  const std::optional<Refusal> refusal = list.objection(hello);
  return refusal ? (refusal->final ? "final: " : "for now: ") + refusal->reason : "";
}

TEST(RendezvousRegister, RefusesWhoDoesNotBelong) {
  const Register list = register_of(4);
  EXPECT_EQ(objection_to(list, hello_of(1)), "");
  Hello other = hello_of(1);
  other.nonce = {2};
  EXPECT_TRUE(objection_to(list, other).starts_with("for now: another job meets here"));
  other = hello_of(1);
  other.version = "0.0.1";
  EXPECT_TRUE(
      objection_to(list, other).starts_with("final: rank 1 runs Spillway 0.0.1 and rank 0 runs "));
  EXPECT_TRUE(objection_to(list, hello_of(1, 5))
                  .starts_with("final: rank 1 was told of 5 ranks and rank 0 of 4:"));
  EXPECT_TRUE(objection_to(list, hello_of(4)).starts_with("final: there is no rank 4"));
  EXPECT_TRUE(objection_to(list, hello_of(0)).starts_with("final: rank 0 is here already"));
}

TEST(RendezvousRegister, AProcessMayComeAgainButNoOtherInItsPlace) {
  Register list = register_of(4);
  list.enter(hello_of(1), kStart);
  Hello twin = hello_of(1);
  twin.instance = 5;
  EXPECT_EQ(objection_to(list, hello_of(1)), "");
  EXPECT_TRUE(objection_to(list, twin).starts_with("final: rank 1 is here already"));
  list.leave(1);
  EXPECT_EQ(objection_to(list, twin), "");
}

TEST(RendezvousRegister, OnceSealedARankIsNotReplaced) {
  Register list = register_of(2);
  list.enter(hello_of(1, 2), kStart);
  EXPECT_TRUE(list.is_sealed());
  list.leave(1);
  Hello twin = hello_of(1, 2);
  twin.instance = 5;
  EXPECT_NE(objection_to(list, twin), "");
  EXPECT_EQ(objection_to(list, hello_of(1, 2)), "");
  EXPECT_TRUE(list.failure_text("here").starts_with("rank 1 of 2 went away from here"));
}

TEST(RendezvousRegister, IsServedWhenAllWereToldEvenIfTheyLeaveThen) {
  Register list = register_of(2);
  list.enter(hello_of(1, 2), kStart);
  EXPECT_FALSE(list.all_served());
  list.mark_served(1);
  list.leave(1);
  EXPECT_TRUE(list.all_served());
  EXPECT_EQ(list.gather().blobs, (std::vector<Blob>{{0}, {1}}));
  EXPECT_EQ(list.gather().randoms, (std::vector<Random>{{7}, {101}}));
}

TEST(RendezvousRegister, TheFirstToLosePatienceEndsIt) {
  Register list = register_of(4);
  EXPECT_EQ(list.deadline(), kStart + base::seconds(30));
  Hello hasty = hello_of(2);
  hasty.patience = base::seconds(10);
  hasty.left = base::seconds(4);
  list.enter(hasty, kStart);
  EXPECT_EQ(list.deadline(), kStart + base::seconds(4));
  EXPECT_TRUE(
      list.failure_text("h:1").starts_with("ranks 1 and 3 of 4 did not come to h:1 within 10 s;"));
  list.leave(2);
  EXPECT_EQ(list.deadline(), kStart + base::seconds(30));
}

TEST(RendezvousRegister, WhoWaitsStillSaysForWhom) {
  Register list = register_of(4);
  list.enter(hello_of(2), kStart);
  EXPECT_EQ(list.waiting_text("h:1", base::milliseconds(10'400)),
            "rank 0 is still waiting at h:1 for ranks 1 and 3 of 4, after 10 s of 30 s");
}

}  // namespace

namespace {

constexpr base::Instant kBegin{base::seconds(100)};

TEST(WaitNotice, ComesAfterAWhileAndThenHalfAsOften) {
  WaitNotice notice(kBegin);
  EXPECT_FALSE(notice.is_due(kBegin + kFirstNotice - base::nanoseconds(1)));
  EXPECT_TRUE(notice.is_due(kBegin + kFirstNotice));
  EXPECT_FALSE(notice.is_due(kBegin + kFirstNotice));
  EXPECT_EQ(notice.next(), kBegin + kFirstNotice * 2);
  EXPECT_TRUE(notice.is_due(kBegin + kFirstNotice * 2));
  EXPECT_EQ(notice.next(), kBegin + kFirstNotice * 4);
}

TEST(WaitNotice, WhoLooksLateIsToldOnce) {
  WaitNotice notice(kBegin);
  EXPECT_TRUE(notice.is_due(kBegin + kFirstNotice * 5));
  EXPECT_FALSE(notice.is_due(kBegin + kFirstNotice * 5));
  EXPECT_EQ(notice.next(), kBegin + kFirstNotice * 8);
}

TEST(RendezvousSentence, NamesRanks) {
  const auto names = [](std::vector<std::uint32_t> ranks) { return name_ranks(ranks, 64); };
  EXPECT_EQ(names({3}), "rank 3 of 64");
  EXPECT_EQ(names({3, 7}), "ranks 3 and 7 of 64");
  EXPECT_EQ(names({3, 4}), "ranks 3 and 4 of 64");
  EXPECT_EQ(names({1, 2, 3, 4, 5, 9}), "ranks 1-5 and 9 of 64");
  std::vector<std::uint32_t> odd;
  for (std::uint32_t rank = 1; rank < 64; rank += 2) {
    odd.push_back(rank);
  }
  EXPECT_EQ(names(odd), "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23 and 20 others of 64");
  EXPECT_EQ(name_duration(base::seconds(30)), "30 s");
  EXPECT_EQ(name_duration(base::milliseconds(250)), "250 ms");
}

}  // namespace

}  // namespace spillway::comm
