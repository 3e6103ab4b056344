// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/code_soak.h"

#include <gtest/gtest.h>

#include <set>

namespace spillway::sim {
namespace {

TEST(CodeSoak, WorldsHoldWhatMustHold) {
  std::set<collective::SumCode> codes;
  std::uint64_t tables = 0;
  std::uint64_t given_up = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const CodeSoakResult result = run_code_world(seed);
    EXPECT_TRUE(result.failures.empty()) << "seed " << seed << ": " << result.failures.front();
    for (const CodeCall& call : result.world.calls) {
      if (call.tolerance) {
        codes.insert(call.tolerance->code);
      }
    }
    tables += result.record.tables;
    given_up += result.record.given_up;
  }
  EXPECT_EQ(codes.size(), collective::kSumCodes);
  EXPECT_GT(tables, 0U);
  EXPECT_GT(given_up, 0U);
}

TEST(CodeSoak, AWorldRunsTheSameAgainAndOthersDoNot) {
  const std::uint64_t digest = run_code_world(3).record.digest;
  EXPECT_EQ(run_code_world(3).record.digest, digest);
  EXPECT_NE(run_code_world(4).record.digest, digest);
}

TEST(CodeSoak, TheJudgeSeesAWrongBitAndAWrongSum) {
  CodeSoakResult result = run_code_world(3);
  ASSERT_TRUE(result.failures.empty());
  for (CodeRecord& call : result.record.calls) {
    call.output[0] += call.rank == 0 ? 1'000.0F : 0.0F;
  }
  EXPECT_GE(check_codes(result.world, result.record).size(), result.world.calls.size());
}

}  // namespace
}  // namespace spillway::sim
