// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "collective/calls.h"

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
  add([](Operation& one) { one.tolerance->codec = Codec::kLevels; });
  add([](Operation& one) { one.tolerance->precision = 8; });
  add([](Operation& one) { one.tolerance->gather_precision = 8; });
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
                          .tolerance = Tolerance{.codec = Codec::kPlanes,
                                                 .loss_bound_ppm = 1'000'000,
                                                 .min_planes = 32,
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

namespace {

Operation tolerant_operation() {
  Operation operation;
  operation.kind = Kind::kAllReduce;
  operation.type = DataType::kBfloat16;
  operation.op = ReduceOp::kAverage;
  operation.count = 0x0102030405;
  operation.tolerance = Tolerance{.precision = 12,
                                  .gather_precision = 8,
                                  .loss_bound_ppm = 123'456,
                                  .min_planes = 2,
                                  .least_contributors = 0.75};
  operation.priority = 5;
  return operation;
}

TEST(Call, IsTheSameAfterTheWay) {
  const base::Result<Operation> parsed = parse_call(encode_call(tolerant_operation()));
  ASSERT_TRUE(parsed.ok());
  const Operation& operation = *parsed;
  EXPECT_EQ(operation.type, DataType::kBfloat16);
  EXPECT_EQ(operation.op, ReduceOp::kAverage);
  EXPECT_EQ(operation.count, 0x0102030405U);
  EXPECT_EQ(operation.priority, 5);
  ASSERT_TRUE(operation.tolerance.has_value());
  EXPECT_EQ(operation.tolerance->precision, 12);
  EXPECT_EQ(operation.tolerance->gather_precision, 8);
  EXPECT_EQ(operation.tolerance->loss_bound_ppm, 123'456U);
  EXPECT_EQ(operation.tolerance->min_planes, 2);
  EXPECT_EQ(operation.tolerance->least_contributors, 0.75);
  EXPECT_EQ(operation.tolerance->feedback_tensor, 0U);
  Operation with_feedback = tolerant_operation();
  with_feedback.tolerance->feedback_tensor = 77;
  EXPECT_NE(parse_call(encode_call(with_feedback))->tolerance->feedback_tensor, 0U);
}

TEST(Call, HasItsFieldsAtFixedPlaces) {
  const CallBytes bytes = encode_call(tolerant_operation());
  const CallBytes expected = {1,  0, 3, 1, 0,    5,    0, 0, 5, 4, 3, 2, 1, 0, 0,    0,
                              12, 8, 2, 1, 0x40, 0xE2, 1, 0, 0, 0, 0, 0, 0, 0, 0xE8, 0x3F};
  EXPECT_EQ(bytes, expected);
  Operation exact;
  exact.kind = Kind::kBroadcast;
  exact.root = 0x0203;
  const CallBytes plain = encode_call(exact);
  EXPECT_EQ(plain[1], 3);
  EXPECT_EQ(plain[6], 3);
  EXPECT_EQ(plain[7], 2);
  EXPECT_FALSE(parse_call(plain)->tolerance.has_value());
}

TEST(Call, SaysHowValuesTravel) {
  for (const Codec codec : {Codec::kPlanes, Codec::kLevels, Codec::kBlocks}) {
    for (const bool predicts : {false, true}) {
      Operation operation = tolerant_operation();
      operation.tolerance->codec = codec;
      operation.tolerance->predicts_scale = predicts;
      const base::Result<Operation> parsed = parse_call(encode_call(operation));
      ASSERT_TRUE(parsed.ok());
      EXPECT_EQ(parsed->tolerance->codec, codec);
      EXPECT_EQ(parsed->tolerance->predicts_scale, predicts);
      EXPECT_EQ(signature(*parsed), signature(operation));
    }
  }
  Operation levels = tolerant_operation();
  levels.tolerance->codec = Codec::kLevels;
  levels.tolerance->predicts_scale = true;
  EXPECT_EQ(encode_call(levels)[19], 1 | 8 | 1 << 4);
  EXPECT_FALSE(are_alike(levels, tolerant_operation()));
  CallBytes of_no_codec = encode_call(levels);
  of_no_codec[19] = 1 | 3 << 4;
  EXPECT_FALSE(parse_call(of_no_codec).ok());
}

TEST(Call, WithNumbersOutsideTheirRangesIsRefused) {
  const CallBytes good = encode_call(tolerant_operation());
  EXPECT_FALSE(parse_call(base::ByteView(good).first(31)).ok());
  for (const std::size_t at : {0, 1, 2, 3, 4, 19}) {
    CallBytes bad = good;
    bad[at] = 0x7F;
    EXPECT_FALSE(parse_call(bad).ok()) << "byte " << at;
  }
  CallBytes without_flag = good;
  without_flag[19] = 0;
  EXPECT_FALSE(parse_call(without_flag).ok());
  CallBytes urgent = good;
  urgent[5] = 8;
  EXPECT_FALSE(validate(parse_call(urgent).value(), {.rank = 2, .world = 3, .servers = 1}).ok());
}

TEST(Call, IsLikeAnotherWhateverItsPriority) {
  const Operation operation = tolerant_operation();
  Operation other = operation;
  other.priority = 0;
  EXPECT_TRUE(are_alike(operation, other));
  other.tolerance->feedback_tensor = 9;
  EXPECT_FALSE(are_alike(operation, other));
  Operation third = operation;
  third.tolerance->feedback_tensor = 8;  // a worker's own name for the tensor
  EXPECT_TRUE(are_alike(other, third));
  other.count += 1;
  EXPECT_FALSE(are_alike(operation, other));
  other = operation;
  other.tolerance->loss_bound_ppm = 0;
  EXPECT_FALSE(are_alike(operation, other));
}

}  // namespace

}  // namespace spillway::collective
