// SPDX-License-Identifier: Apache-2.0
//
// Ranks that call different operations: every rank learns both calls in full, whoever detects the
// mismatch and whatever gets lost.
#include <gtest/gtest.h>

#include <string>

#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

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
