// SPDX-License-Identifier: Apache-2.0
//
// Ranks that leave, and ranks whose calls differ.
#include <gtest/gtest.h>

#include <string>

#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

// ------------------------------------------------------------------ ranks that leave

// The last operation of ranks that leave one by one: late ranks end it like those that have already
// left.

using collective::Operation;

void leave_when_idle(SimulatedGroup& group, std::uint16_t rank) {
  if (group.stack(rank).engine().is_idle()) {
    group.leave(rank);
    return;
  }
  group.network().at(group.network().now() + base::microseconds(100),
                     [&group, rank](base::Instant) { leave_when_idle(group, rank); });
}

// Three ranks leave after the last step. When it begins, the first coordinator (rank 0) is cut off.
// When that is back, the rank that decided in its place cannot send for a while. So rank 0 hears
// only from the third rank, which is done and leaves.
void expect_all_end_the_last_step_alike(double least) {
  constexpr std::uint16_t kRanks = 3;
  constexpr std::uint64_t kLast = 30;  // a multiple of the ranks: rank 0 coordinates first
  constexpr std::size_t kCount = 6'000;
  SimulatedGroup group({.ranks = kRanks, .rate = base::gigabits_per_second(1)});
  Gradients gradients(kRanks, kCount, 1);
  const Operation operation = tolerant(kCount, {.least_contributors = least});
  for (std::uint64_t step = 0; step < kLast; ++step) {
    run_once(group, gradients, operation, kRanks, step * kRanks);
  }
  const base::Instant begin = group.network().now();
  const auto cut = [&](const std::string& link, int from_ms, int until_ms) {
    add_fault(group, link, scenario::FaultKind::kDown, 1.0, begin + base::milliseconds(from_ms),
              begin + base::milliseconds(until_ms));
  };
  cut(up_link(0), 0, 300);
  cut(down_link(0), 0, 300);
  cut(up_link(1), 250, 900);
  std::vector<base::Instant> ended(kRanks);
  group.on_ending([&](std::uint16_t rank, const Ending& ending) {
    EXPECT_TRUE(ending.status.ok()) << "rank " << rank << ": " << ending.status.message();
    ended[rank] = group.network().now();
    leave_when_idle(group, rank);
  });
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(group.submit(rank, gradients.at(rank, operation)).ok());
  }
  ASSERT_TRUE(group.run(kRanks * (kLast + 1), base::seconds(5)));
  EXPECT_EQ(gradients.output[1], gradients.output[2]);
  EXPECT_EQ(gradients.output[0], gradients.output[2]);
  EXPECT_EQ(group.endings(0).back().report.empty_shards, 1);
  EXPECT_EQ(group.endings(0).back().report.contributors, 2);
  // Or this test shows nothing: the others finished without rank 0, and it heard from them late.
  EXPECT_LT(ended[1], begin + base::milliseconds(250));
  EXPECT_LT(ended[2], begin + base::milliseconds(250));
  EXPECT_GT(ended[0], begin + base::milliseconds(900));
}

// Rank 0 must not continue alone, and must not take the third rank's leave for the operation's end.
TEST(Leaving, ARankThatIsLateForTheLastStepIsToldHowItEnded) {
  expect_all_end_the_last_step_alike(0.5);
}

// Rank 0 may continue alone, but must not take the third rank's leave for its consent.
TEST(Leaving, ARankThatIsLateForTheLastStepDoesNotDecideItAgain) {
  expect_all_end_the_last_step_alike(0.3);
}

TEST(Leaving, ARankThatLeavesBeforeAStepWithDeadlinesIsNamed) {
  constexpr std::uint16_t kRanks = 3;
  constexpr std::uint64_t kSteps = 12;
  SimulatedGroup group({.ranks = kRanks});
  Gradients gradients(kRanks, 6'000, 1);
  const Operation operation = tolerant(6'000, {.least_contributors = 0.5});
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    run_once(group, gradients, operation, kRanks, step * kRanks);
  }
  leave_when_idle(group, 2);
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    group.submit_at(group.network().now() + base::milliseconds(50), rank,
                    gradients.at(rank, operation));
  }
  ASSERT_TRUE(group.run(kRanks * kSteps + 2, base::seconds(5)));
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    const base::Status& status = group.endings(rank).back().status;
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
  }
}

// ------------------------------------------------------------------ calls that differ

// Ranks that call different operations: every rank learns both calls in full, whoever detects the
// mismatch and whatever gets lost.

using collective::Algorithm;
using collective::DataType;
using collective::Kind;
using collective::Operation;
using collective::ReduceOp;
using collective::Tolerance;

constexpr std::uint16_t kDisagreeing = 4;
constexpr std::uint16_t kOddRank = 2;

void lose_packets(SimulatedGroup& group, double share) {
  for (std::uint16_t rank = 0; rank < kDisagreeing; ++rank) {
    const std::string host = "host" + std::to_string(rank);
    for (const std::string& link : {host + "->switch0", "switch0->" + host}) {
      scenario::Fault fault;
      fault.link = link;
      fault.share = share;
      ASSERT_TRUE(group.network().add_fault(fault).ok()) << link;
    }
  }
}

// All ranks of the group call `usual`, except one.
class Disagreement {
 public:
  Disagreement(const Operation& usual, const Operation& odd)
      : memory_(kDisagreeing * kDisagreeing * kFloats) {
    for (std::uint16_t rank = 0; rank < kDisagreeing; ++rank) {
      float* at = memory_.data() + std::size_t{rank} * kDisagreeing * kFloats;
      EXPECT_TRUE(group_.submit(rank, on_buffers(rank == kOddRank ? odd : usual, at, at)).ok());
    }
  }

  SimulatedGroup& group() { return group_; }
  const base::Status& said_at(std::uint16_t rank) { return group_.endings(rank).front().status; }

 private:
  static constexpr std::size_t kFloats = 20'000;
  std::vector<float> memory_;
  SimulatedGroup group_{{.ranks = kDisagreeing}};
};

const Operation kUsualCall{.op = ReduceOp::kMax, .count = 1000};

std::vector<Operation> odd_calls() {
  const Operation reduce{.kind = Kind::kReduce, .op = ReduceOp::kMax, .count = 1000, .root = 3};
  return {{.kind = Kind::kBarrier},
          {.op = ReduceOp::kMax, .count = 999},
          {.type = DataType::kInt32, .op = ReduceOp::kMax, .count = 1000},
          {.op = ReduceOp::kMin, .count = 1000},
          {.op = ReduceOp::kMax, .count = 1000, .algorithm = Algorithm::kRing},
          {.count = 1000, .tolerance = Tolerance{}},
          reduce};
}

TEST(Mismatch, EveryRankHearsBothCallsWhateverGetsLost) {
  for (const double loss : {0.001, 0.3}) {
    for (const Operation& odd : odd_calls()) {
      Disagreement ranks(kUsualCall, odd);
      lose_packets(ranks.group(), loss);
      ASSERT_TRUE(ranks.group().run(kDisagreeing)) << describe_call(odd);
      for (std::uint16_t rank = 0; rank < kDisagreeing; ++rank) {
        const base::Status& said = ranks.said_at(rank);
        EXPECT_EQ(said.code(), base::StatusCode::kMismatch);
        for (const std::string& part : {describe_call(kUsualCall), describe_call(odd),
                                        std::string("rank 2"), std::string("operation 0 is ")}) {
          EXPECT_NE(said.message().find(part), std::string::npos)
              << "rank " << rank << " with loss " << loss << ": " << said.message();
        }
      }
    }
  }
}

TEST(Mismatch, RootsThatDifferAreSaid) {
  const auto reduce_to = [](std::uint16_t root) {
    return Operation{.kind = Kind::kBroadcast, .count = 1000, .root = root};
  };
  Disagreement ranks(reduce_to(1), reduce_to(2));
  ASSERT_TRUE(ranks.group().run(kDisagreeing));
  for (std::uint16_t rank = 0; rank < kDisagreeing; ++rank) {
    const std::string& said = ranks.said_at(rank).message();
    EXPECT_NE(said.find("1000 float32, root 1"), std::string::npos) << said;
    EXPECT_NE(said.find("1000 float32, root 2"), std::string::npos) << said;
  }
}

// Rank 2 receives nothing, so it never reports its own call.
TEST(Mismatch, IsToldWithWhatIsKnownWhereTheOtherRankDoesNotAnswer) {
  Disagreement ranks(kUsualCall, {.op = ReduceOp::kMax, .count = 999});
  scenario::Fault deaf;
  deaf.kind = scenario::FaultKind::kDown;
  deaf.link = "switch0->host2";
  ASSERT_TRUE(ranks.group().network().add_fault(deaf).ok());
  ASSERT_TRUE(ranks.group().run(kDisagreeing, base::seconds(5)));
  for (const std::uint16_t rank : {0, 1, 3}) {
    const base::Status& said = ranks.said_at(rank);
    EXPECT_EQ(said.code(), base::StatusCode::kMismatch);
    EXPECT_NE(said.message().find("at rank 2 it is the same with another size"), std::string::npos)
        << said.message();
  }
}

}  // namespace
}  // namespace spillway::sim
