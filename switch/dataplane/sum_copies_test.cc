// SPDX-License-Identifier: Apache-2.0
#include "switch/dataplane/sum_copies.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "switch/dataplane/sum_testing.h"

namespace spillway::dataplane {
namespace {

constexpr std::uint32_t kUplink = 9;

struct Copy {
  std::uint32_t rank;
  std::uint32_t port;
  std::uint64_t recipients;
  bool operator==(const Copy&) const = default;
};

class SumCopies : public testing::Test {
 protected:
  SumCopies() { spillway_open_job(job_.get(), 3, spillway_sum_name(1)); }

  void hear(std::uint16_t source, std::initializer_list<unsigned> ranks, std::uint32_t port,
            std::uint8_t level = 0) {
    SumPacket packet = sum_packet(SPILLWAY_SUM_PART, 0, ranks, 8);
    packet.header().common.source = source;
    packet.header().level = level;
    packet.route.bytes[0] = source;
    spillway_learn_member(job_.get(), &packet.image, &packet.route, port);
  }

  std::vector<Copy> copies(std::uint64_t recipients, std::uint32_t came_in_at) {
    result_ = sum_packet(SPILLWAY_SUM_RESULT, 0, {}, 8);
    result_.header().marks = SPILLWAY_SUM_MULTIPLY;
    result_.header().recipients[0] = recipients;
    spillway_begin_spread(&result_.image, came_in_at, &spread_);
    std::vector<Copy> made;
    spillway_sum_copy copy;
    while (spillway_next_copy(job_.get(), &spread_, &copy) != 0) {
      made.push_back({copy.rank, copy.port, copy.recipients[0]});
    }
    return made;
  }

  std::unique_ptr<spillway_sum_job> job_ = std::make_unique<spillway_sum_job>();
  SumPacket result_;
  spillway_sum_spread spread_ = {};
};

TEST_F(SumCopies, EveryKnownRankGetsOne) {
  for (std::uint16_t rank = 1; rank < 4; ++rank) {
    hear(rank, {rank}, rank);
  }
  const std::vector<Copy> expected = {{1, 1, 2}, {2, 2, 4}, {3, 3, 8}};
  EXPECT_EQ(copies(0b1110, 7), expected);
  EXPECT_EQ(spread_.unknown[0], 0U);
}

TEST_F(SumCopies, NoneGoesBackOrToStrangers) {
  hear(1, {1}, 1);
  hear(2, {2}, 2);
  const std::vector<Copy> expected = {{2, 2, 4}};
  EXPECT_EQ(copies(0b100110, 1), expected);
  EXPECT_EQ(spread_.unknown[0], 0b100010U);
}

// Ranks whose parts come together get one copy, addressed to a known one of them. Ranks known to be
// elsewhere get their own.
TEST_F(SumCopies, RacksGetOne) {
  hear(4, {3, 4, 5}, kUplink, 1);
  hear(1, {1}, 1);
  hear(5, {5}, 5);
  const std::vector<Copy> expected = {{1, 1, 0b10}, {4, kUplink, 0b11000}, {5, 5, 0b100000}};
  EXPECT_EQ(copies(0b111010, 7), expected);
  EXPECT_EQ(spread_.unknown[0], 0U);
}

TEST_F(SumCopies, EpochsAndJobsAreToldApart) {
  hear(1, {1}, 1);
  SumPacket later = sum_packet(SPILLWAY_SUM_RESULT, 0, {}, 8);
  later.header().common.epoch = 1;
  later.header().recipients[0] = 2;
  spillway_sum_copy copy;
  spillway_begin_spread(&later.image, 7, &spread_);
  EXPECT_EQ(spillway_next_copy(job_.get(), &spread_, &copy), 0);
  spillway_open_job(job_.get(), 3, spillway_sum_name(2));
  EXPECT_TRUE(copies(2, 7).empty());
}

TEST_F(SumCopies, OtherPathsTeachNothing) {
  SumPacket packet = sum_packet(SPILLWAY_SUM_PART, 0, {1}, 8);
  packet.header().common.path = 2;
  spillway_learn_member(job_.get(), &packet.image, &packet.route, 1);
  EXPECT_TRUE(copies(2, 7).empty());
}

TEST_F(SumCopies, ASourceThatIsNotInItsOwnSumTeachesNothing) {
  hear(1, {2}, 1);
  EXPECT_TRUE(copies(0b110, 7).empty());
}

TEST_F(SumCopies, MovedRanksAreFoundAnew) {
  hear(1, {1}, 1);
  hear(1, {1}, 2);
  const std::vector<Copy> expected = {{1, 2, 2}};
  EXPECT_EQ(copies(2, 7), expected);
}

TEST_F(SumCopies, OneRecipientsCopyIsAPlainResult) {
  SumPacket result = sum_packet(SPILLWAY_SUM_RESULT, 0, {}, 8);
  result.header().marks = SPILLWAY_SUM_MULTIPLY;
  result.header().recipients[0] = 0b110;
  const spillway_sum_copy many = {.recipients = {0b110, 0}, .together = {}, .rank = 2, .port = 1};
  spillway_dress_copy(&many, &result.image);
  EXPECT_EQ(result.header().marks, SPILLWAY_SUM_MULTIPLY);
  EXPECT_EQ(result.header().recipients[0], 0b110U);
  EXPECT_EQ(result.header().common.destination, 2);
  const spillway_sum_copy one = {.recipients = {0, 1}, .together = {}, .rank = 64, .port = 1};
  spillway_dress_copy(&one, &result.image);
  EXPECT_EQ(result.header().marks, 0);
  EXPECT_EQ(result.header().recipients[0], 0U);
  EXPECT_EQ(result.header().recipients[1], 0U);
  EXPECT_EQ(result.header().common.destination, 64);
}

// Locations can be forged: copies must not circulate.
TEST_F(SumCopies, CopiesOfCopiesEnd) {
  SumPacket result = sum_packet(SPILLWAY_SUM_RESULT, 3, {1, 2, 3}, 8);
  result.header().marks = SPILLWAY_SUM_MULTIPLY;
  spillway_sum_copy copy = {};
  copy.rank = 1;
  copy.recipients[0] = 0b110;
  for (unsigned copies = 0; copies <= SPILLWAY_SUM_LEVELS; ++copies) {
    EXPECT_EQ(result.header().marks, SPILLWAY_SUM_MULTIPLY) << copies;
    spillway_dress_copy(&copy, &result.image);
  }
  EXPECT_EQ(result.header().marks, 0);
  EXPECT_EQ(result.header().recipients[0], 0U);
}

TEST_F(SumCopies, TheResultGoesOnForWhomItIsAddressedTo) {
  EXPECT_TRUE(copies(0b110, 7).empty());
  result_.header().common.destination = 1;
  EXPECT_NE(spillway_keep_result(&spread_, &result_.image), 0);
  EXPECT_EQ(result_.header().recipients[0], 0b110U);
  hear(1, {1}, 1);
  EXPECT_EQ(copies(0b110, 7).size(), 1U);
  result_.header().common.destination = 1;
  EXPECT_EQ(spillway_keep_result(&spread_, &result_.image), 0);
}

// spillway_passes_by() decides as spillway_screen_sum() does, for packets that teach nothing.
TEST_F(SumCopies, PassingByIsNoOtherDecision) {
  const spillway_sum_config config = {.slots = 1,
                                      .lease_us = 1,
                                      .pools = 1,
                                      .policy = SPILLWAY_SUM_STATIC,
                                      .level = 0,
                                      .reserved = {}};
  for (unsigned kind = 1; kind < SPILLWAY_SUM_KINDS; ++kind) {
    for (unsigned level = 0; level <= SPILLWAY_SUM_LEVELS; ++level) {
      for (const int has_words : {0, 1}) {
        SumPacket packet = sum_packet(static_cast<spillway_sum_kind>(kind), 3, {1}, 8);
        packet.header().level = static_cast<std::uint8_t>(level);
        spillway_sum_decision passing;
        spillway_sum_decision screened;
        if (spillway_passes_by(&config, &packet.image, has_words, &passing) != 0) {
          EXPECT_EQ(spillway_screen_sum(&config, &packet.image, has_words, &screened), 0);
          EXPECT_EQ(passing.outcome, screened.outcome);
          EXPECT_TRUE(kind != SPILLWAY_SUM_PART || spillway_teaches(&packet.image) == 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace spillway::dataplane
