// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/sum_soak.h"

#include <gtest/gtest.h>

namespace spillway::sim {
namespace {

TEST(SumSoak, WorldsHoldWhatMustHold) {
  spillway_sum_counters switches = {};
  std::uint64_t refused = 0;
  std::uint64_t missing = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const SumSoakResult result = run_sum_world(seed);
    EXPECT_TRUE(result.failures.empty()) << "seed " << seed << ": " << result.failures.front();
    for (unsigned i = 0; i < SPILLWAY_SUM_OUTCOMES; ++i) {
      switches.outcomes[i] += result.record.switches.outcomes[i];
    }
    switches.copies += result.record.switches.copies;
    refused += result.record.refused;
    missing += result.record.missing;
  }
  for (const spillway_sum_outcome outcome :
       {SPILLWAY_SUM_DID_CLAIM, SPILLWAY_SUM_DID_ADD, SPILLWAY_SUM_DID_EMIT,
        SPILLWAY_SUM_DID_DUPLICATE, SPILLWAY_SUM_DID_COLLISION, SPILLWAY_SUM_DID_EVICTION,
        SPILLWAY_SUM_DID_FLUSH, SPILLWAY_SUM_DID_NOT_HELD, SPILLWAY_SUM_DID_RESULT}) {
    EXPECT_GT(switches.outcomes[outcome], 0U) << sum_outcome_name(outcome);
  }
  EXPECT_GT(switches.copies, 0U);
  EXPECT_GT(refused, 0U);
  EXPECT_GT(missing, 0U);
}

TEST(SumSoak, AWorldRunsTheSameAgainAndOthersDoNot) {
  const std::uint64_t digest = run_sum_world(3).record.digest;
  EXPECT_EQ(run_sum_world(3).record.digest, digest);
  EXPECT_NE(run_sum_world(4).record.digest, digest);
}

TEST(SumSoak, AWorldIsAScenarioThatCanBeReadAgain) {
  EXPECT_TRUE(scenario::parse_scenario(describe(draw_sum_world(5))).ok());
}

// With slots for all and no loss, every chunk leaves the switch once, complete, and its result
// enters the switch once, however late ranks are.
TEST(SumSoak, LateRanksCostNoSlotItsSum) {
  for (const std::uint16_t ranks : {4, 8}) {
    SumWorld world;
    world.seed = ranks;
    world.scenario =
        scenario::parse_scenario("topology one-switch hosts=" + std::to_string(ranks) +
                                 " rate=1gbit delay=10us\naggregate slots=1048576 lease=10s\n")
            .value();
    SumJobPlan job;
    job.number = 1;
    job.ranks = ranks;
    job.operations = 4;
    job.owners = {0, 1, 2, 3};
    job.chunks = 60;
    job.gap = base::milliseconds(20);
    job.jitter = base::milliseconds(100);
    world.jobs = {job};
    world.limit = base::Instant(base::seconds(10));
    const SumSoakResult result = run_sum_world(world);
    EXPECT_TRUE(result.failures.empty()) << result.failures.front();
    const auto& outcomes = result.record.switches.outcomes;
    constexpr std::uint64_t kChunks = 4ULL * 4 * 60;
    EXPECT_EQ(outcomes[SPILLWAY_SUM_DID_CLAIM], kChunks);
    EXPECT_EQ(outcomes[SPILLWAY_SUM_DID_EMIT], kChunks);
    EXPECT_EQ(outcomes[SPILLWAY_SUM_DID_FLUSH] + outcomes[SPILLWAY_SUM_DID_NOT_HELD], 0U);
    EXPECT_LE(outcomes[SPILLWAY_SUM_DID_RESULT], kChunks * 101 / 100);
    EXPECT_EQ(result.record.switches.copies, kChunks * (ranks - 1U));
  }
}

// A sum of two ranks that ended well, for tests to modify.
class SumChecks : public testing::Test {
 protected:
  SumChecks() {
    SumJobPlan job;
    job.number = 1;
    job.ranks = 2;
    job.operations = 1;
    job.owners = {0};
    job.chunks = 1;
    world_.jobs = {job};
    for (std::uint16_t rank = 0; rank < 2; ++rank) {
      SumRecord& sum = record_.sums.emplace_back();
      sum.rank = rank;
      sum.is_over = true;
      sum.ranks = {wire::RankSet::below(2)};
      for (std::size_t i = 0; i < SPILLWAY_SUM_WORDS; ++i) {
        sum.words.push_back(sum_part(job, 0, 0, 0, i) + sum_part(job, 0, 0, 1, i));
      }
    }
  }

  std::string judge() const {
    const std::vector<std::string> failures = check_sums(world_, record_);
    return failures.empty() ? "" : failures.front();
  }

  SumWorld world_;
  SumSoakRecord record_;
};

TEST_F(SumChecks, ARightSumPasses) {
  EXPECT_EQ(judge(), "");
}

TEST_F(SumChecks, AWordThatIsOffByOneIsSeen) {
  ++record_.sums[1].words[167];
  EXPECT_NE(judge().find("is not the sum"), std::string::npos);
}

TEST_F(SumChecks, APartThatCountsTwiceIsSeen) {
  for (std::size_t i = 0; i < SPILLWAY_SUM_WORDS; ++i) {
    record_.sums[0].words[i] += sum_part(world_.jobs[0], 0, 0, 1, i);
  }
  EXPECT_NE(judge().find("is not the sum"), std::string::npos);
}

TEST_F(SumChecks, APartThatIsNotReportedMissingIsSeen) {
  record_.sums[1].ranks[0].erase(1);
  EXPECT_NE(judge().find("is not the sum"), std::string::npos);
}

TEST_F(SumChecks, MoreThanTheBoundForgivesIsSeen) {
  for (SumRecord& sum : record_.sums) {
    sum.ranks[0].erase(1);
    for (std::size_t i = 0; i < SPILLWAY_SUM_WORDS; ++i) {
      sum.words[i] = sum_part(world_.jobs[0], 0, 0, 0, i);
    }
  }
  EXPECT_NE(judge().find("lacks 1 parts, where 0 may"), std::string::npos);
  world_.jobs[0].loss_bound_ppm = 1'000'000;
  EXPECT_EQ(judge(), "");
}

TEST_F(SumChecks, ASumWithoutEndAndPacketsThatStayAreSeen) {
  record_.sums[1].is_over = false;
  EXPECT_NE(judge().find("was not over"), std::string::npos);
  record_.sums[1].is_over = true;
  record_.packets_left = 1;
  EXPECT_NE(judge().find("left on their way"), std::string::npos);
}

}  // namespace
}  // namespace spillway::sim
