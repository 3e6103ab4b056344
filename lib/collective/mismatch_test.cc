// SPDX-License-Identifier: Apache-2.0
#include "collective/mismatch.h"

#include <gtest/gtest.h>

#include <set>

namespace spillway::collective {
namespace {

const Group kFourRanks{.rank = 0, .world = 4, .servers = 1};

wire::Mismatch mismatch_of(const wire::CallText& first, const wire::CallText& second) {
  return {.operation = 7, .is_point_to_point = false, .calls = {first, second}};
}

TEST(Mismatch, NamesBothRanksAndTheirCallsWithAllThatDiffers) {
  const Operation reduce{
      .kind = Kind::kReduce, .op = ReduceOp::kMax, .count = 10, .root = 2, .algorithm = {}};
  const Operation barrier{.kind = Kind::kBarrier};
  EXPECT_EQ(
      mismatch_sentence(mismatch_of(call_text(1, reduce), call_text(3, barrier)), kFourRanks),
      "operation 7 is reduce of 10 float32 (max), root 2 at rank 1, but at parameter server 0 "
      "(rank 3) it is barrier; all ranks must call the same operations with the same "
      "arguments in the same order");
}

TEST(Mismatch, EveryArgumentThatRanksMustAgreeOnShowsInACall) {
  const Operation plain{.count = 10, .tolerance = Tolerance{}};
  std::set<std::string> calls{describe_call(plain)};
  std::size_t expected = 1;
  const auto add = [&](auto&& change) {
    Operation other = plain;
    change(other);
    EXPECT_NE(signature(other), signature(plain));
    calls.insert(describe_call(other));
    EXPECT_EQ(calls.size(), ++expected) << describe_call(other);
  };
  add([](Operation& one) { one.kind = Kind::kReduceScatter; });
  add([](Operation& one) { one.type = DataType::kFloat64; });
  add([](Operation& one) { one.op = ReduceOp::kAverage; });
  add([](Operation& one) { one.count = 11; });
  add([](Operation& one) { one.algorithm = Algorithm::kRing; });
  add([](Operation& one) { one.tolerance.reset(); });
  add([](Operation& one) { one.tolerance->code = SumCode::kLevels; });
  add([](Operation& one) { one.tolerance->precision = 8; });
  add([](Operation& one) { one.tolerance->gather_precision = 8; });
  add([](Operation& one) { one.tolerance->lossy_gather = true; });
  add([](Operation& one) { one.tolerance->least_contributors = 0.5; });
  add([](Operation& one) { one.tolerance->feedback_tensor = 3; });
  add([](Operation& one) { one.tolerance->predicts_scale = true; });
}

TEST(Mismatch, TheLongestCallIsNotCut) {
  const Operation longest{.kind = Kind::kReduceScatter,
                          .type = DataType::kBfloat16,
                          .op = ReduceOp::kAverage,
                          .count = std::size_t{1} << 40,
                          .root = UINT16_MAX,
                          .algorithm = Algorithm::kServers,
                          .tolerance = Tolerance{.code = SumCode::kPlanes,
                                                 .loss_bound_ppm = 1'000'000,
                                                 .min_planes = 32,
                                                 .lossy_gather = true,
                                                 .feedback_tensor = 1,
                                                 .least_contributors = 0.123456,
                                                 .predicts_scale = true}};
  EXPECT_EQ(call_text(0, longest).view(), describe_call(longest));
}

TEST(Mismatch, IsFilledInWithWhatAnotherRankKnowsOfTheSameOperation) {
  const wire::CallText whole = call_text(1, "barrier", true);
  const wire::CallText part = call_text(1, "something", false);
  const wire::CallText other = call_text(0, "all_reduce", true);
  wire::Mismatch mismatch = mismatch_of(other, part);
  EXPECT_FALSE(is_whole(mismatch));
  wire::Mismatch elsewhere = mismatch_of(whole, call_text(2, "all_reduce", false));
  elsewhere.operation = 8;
  fill_in(mismatch, elsewhere);
  EXPECT_FALSE(is_whole(mismatch));
  elsewhere.operation = 7;
  fill_in(mismatch, elsewhere);
  EXPECT_TRUE(is_whole(mismatch));
  EXPECT_EQ(mismatch.calls[1].view(), "barrier");
}

TEST(Mismatch, MessagesBetweenTwoRanksAreTheirsAlone) {
  wire::Mismatch mismatch = mismatch_of(call_text(0, "receive", true), call_text(1, "send", false));
  mismatch.is_point_to_point = true;
  wire::Mismatch others = mismatch_of(call_text(2, "receive", false), call_text(1, "send", true));
  others.is_point_to_point = true;
  fill_in(mismatch, others);
  EXPECT_FALSE(is_whole(mismatch));
  others.calls[0].rank = 0;
  fill_in(mismatch, others);
  EXPECT_TRUE(is_whole(mismatch));
}

TEST(Mismatch, ATextOfAPeerCannotDriveATerminal) {
  wire::CallText forged{.rank = 1, .is_whole = true, .bytes = 5, .text = {}};
  std::copy_n("\x1b[2J\n", 5, forged.text.begin());
  const std::string said =
      mismatch_sentence(mismatch_of(call_text(0, "x", true), forged), kFourRanks);
  EXPECT_EQ(said.find('\x1b'), std::string::npos);
  EXPECT_EQ(said.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace spillway::collective
