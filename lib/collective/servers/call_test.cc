// SPDX-License-Identifier: Apache-2.0
#include "collective/servers/call.h"

#include <gtest/gtest.h>

namespace spillway::collective {
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
                                  .lossy_gather = true,
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
  EXPECT_TRUE(operation.tolerance->lossy_gather);
  EXPECT_EQ(operation.tolerance->least_contributors, 0.75);
  EXPECT_EQ(operation.tolerance->feedback_tensor, 0U);
  Operation with_feedback = tolerant_operation();
  with_feedback.tolerance->feedback_tensor = 77;
  EXPECT_NE(parse_call(encode_call(with_feedback))->tolerance->feedback_tensor, 0U);
}

TEST(Call, HasItsFieldsAtFixedPlaces) {
  const CallBytes bytes = encode_call(tolerant_operation());
  const CallBytes expected = {1,  0, 3, 1, 0,    5,    0, 0, 5, 4, 3, 2, 1, 0, 0,    0,
                              12, 8, 2, 3, 0x40, 0xE2, 1, 0, 0, 0, 0, 0, 0, 0, 0xE8, 0x3F};
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
  for (const SumCode code : {SumCode::kPlanes, SumCode::kLevels, SumCode::kBlocks}) {
    for (const bool predicts : {false, true}) {
      Operation operation = tolerant_operation();
      operation.tolerance->code = code;
      operation.tolerance->predicts_scale = predicts;
      const base::Result<Operation> parsed = parse_call(encode_call(operation));
      ASSERT_TRUE(parsed.ok());
      EXPECT_EQ(parsed->tolerance->code, code);
      EXPECT_EQ(parsed->tolerance->predicts_scale, predicts);
      EXPECT_EQ(signature(*parsed), signature(operation));
    }
  }
  Operation levels = tolerant_operation();
  levels.tolerance->code = SumCode::kLevels;
  levels.tolerance->predicts_scale = true;
  EXPECT_EQ(encode_call(levels)[19], 1 | 2 | 8 | 1 << 4);
  EXPECT_FALSE(are_alike(levels, tolerant_operation()));
  CallBytes of_no_code = encode_call(levels);
  of_no_code[19] = 1 | 3 << 4;
  EXPECT_FALSE(parse_call(of_no_code).ok());
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
