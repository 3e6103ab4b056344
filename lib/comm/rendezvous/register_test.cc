// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/register.h"

#include <gtest/gtest.h>

#include "base/version.h"

namespace spillway::runtime {
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
  EXPECT_TRUE(list.verdict("here").starts_with("rank 1 of 2 went away from here"));
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
      list.verdict("h:1").starts_with("ranks 1 and 3 of 4 did not come to h:1 within 10 s;"));
  list.leave(2);
  EXPECT_EQ(list.deadline(), kStart + base::seconds(30));
}

TEST(RendezvousRegister, WhoWaitsStillSaysForWhom) {
  Register list = register_of(4);
  list.enter(hello_of(2), kStart);
  EXPECT_EQ(list.interim("h:1", base::milliseconds(10'400)),
            "rank 0 is still waiting at h:1 for ranks 1 and 3 of 4, after 10 s of 30 s");
}

}  // namespace
}  // namespace spillway::runtime
