// SPDX-License-Identifier: Apache-2.0
#include "sim/drill/drill.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace spillway::sim {
namespace {

TEST(Drill, WorldsHoldWhatMustHold) {
  std::uint64_t survived = 0;
  std::uint64_t decisions = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const DrillResult result = run_drill(draw_drill_world(seed));
    EXPECT_TRUE(result.failures.empty()) << "seed " << seed << ": " << result.failures.front();
    survived += must_survive(result.world, result.record) ? 1 : 0;
    decisions += result.record.decisions.size();
  }
  EXPECT_GT(survived, 60U);  // guards against a check that lets all jobs die
  EXPECT_GT(decisions, 200U);
}

TEST(Drill, EveryTroubleInEveryPhaseOfAChange) {
  std::array<std::uint64_t, kDrillPhases> in_phase{};
  for (const DrillWorld& world : phase_worlds(8)) {
    const DrillResult result = run_drill(world);
    EXPECT_TRUE(result.failures.empty())
        << "world " << world.seed << ": " << result.failures.front() << "\n"
        << describe(world);
    for (std::size_t i = 0; i < kDrillPhases; ++i) {
      in_phase[i] += result.record.in_phase[i];
    }
  }
  for (std::size_t i = 0; i < kDrillPhases; ++i) {
    EXPECT_GT(in_phase[i], 20U) << phase_name(static_cast<DrillPhase>(i));
  }
}

TEST(Drill, AWorldRunsTheSameAgainAndOthersDoNot) {
  const std::uint64_t digest = run_drill(draw_drill_world(7)).record.digest;
  EXPECT_EQ(run_drill(draw_drill_world(7)).record.digest, digest);
  EXPECT_NE(run_drill(draw_drill_world(8)).record.digest, digest);
}

// A world and a record without violations, for tests to modify.
class DrillChecks : public ::testing::Test {
 protected:
  DrillChecks() {
    world_.ranks = 3;
    world_.standbys = 1;
    record_.processes.assign(4, {.end = ProcessEnd::kDismissed, .why = "the job is done"});
    record_.decisions[2] = {.view = {.epoch = 2, .ranks = {1, 2, 4}}, .step = 10};
    record_.completions = {{1, 9, 1}, {1, 9, 2}, {1, 9, 3}, {1, 10, 3}, {2, 10, 1}};
  }
  bool says(std::string_view part) const {
    const std::vector<std::string> failures = check_drill(world_, record_);
    return failures.size() == 1 && failures.front().find(part) != std::string::npos;
  }

  DrillWorld world_{};
  DrillRecord record_{};
};

TEST_F(DrillChecks, SayNothingWhenAllIsWell) {
  EXPECT_TRUE(check_drill(world_, record_).empty());
}

TEST_F(DrillChecks, SeeOnesThatWentOnInAnEpochThatIsOver) {
  record_.completions.push_back({1, 10, 2});  // is a rank of epoch 2, which repeats step 10
  EXPECT_TRUE(says("process 2 ended step 10 in epoch 1, but epoch 2 begins at step 10"));
  record_.completions.back() = {1, 11, 3};  // is not, but step 11 cannot have been complete
  EXPECT_TRUE(says("process 3 ended step 11 in epoch 1"));
}

TEST_F(DrillChecks, SeeThoseThatHangOrEndWithoutAWord) {
  record_.processes[1] = {
      .end = ProcessEnd::kAlive, .why = "rank 2 to end its step", .is_affected = true};
  EXPECT_TRUE(says("process 2 hangs: it waits for rank 2 to end its step"));
  record_.processes[1] = {.end = ProcessEnd::kDismissed, .why = "", .is_affected = true};
  EXPECT_TRUE(says("process 2 ended without a word"));
}

TEST_F(DrillChecks, SeeJobsThatGiveUpAlthoughEnoughWereSpared) {
  record_.processes[0].why = "1 of 4 members are in reach";
  EXPECT_TRUE(says("process 1 was not touched, but ended"));
  record_.processes[1].is_affected = true;
  EXPECT_TRUE(says("process 1 was not touched, but ended"));
  record_.processes[2].is_affected = true;  // two affected, but one standby
  EXPECT_TRUE(check_drill(world_, record_).empty());
}

}  // namespace
}  // namespace spillway::sim
