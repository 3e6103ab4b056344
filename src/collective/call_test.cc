// SPDX-License-Identifier: Apache-2.0
#include "collective/call.h"

#include <gtest/gtest.h>

namespace spillway::collective {
namespace {

Call tolerant_call() {
  Call call;
  call.operation.kind = Kind::kAllReduce;
  call.operation.type = DataType::kBfloat16;
  call.operation.op = ReduceOp::kAverage;
  call.operation.count = 0x0102030405;
  call.operation.tolerance = Tolerance{.precision = 12,
                                       .gather_precision = 8,
                                       .bound_ppm = 123'456,
                                       .min_planes = 2,
                                       .lossy_gather = true,
                                       .least_contributors = 0.75};
  call.priority = 5;
  return call;
}

TEST(Call, IsTheSameAfterTheWay) {
  const Call call = tolerant_call();
  const base::Result<Call> parsed = parse_call(encode_call(call));
  ASSERT_TRUE(parsed.ok());
  const Operation& operation = parsed->operation;
  EXPECT_EQ(operation.type, DataType::kBfloat16);
  EXPECT_EQ(operation.op, ReduceOp::kAverage);
  EXPECT_EQ(operation.count, 0x0102030405U);
  EXPECT_EQ(parsed->priority, 5);
  ASSERT_TRUE(operation.tolerance.has_value());
  EXPECT_EQ(operation.tolerance->precision, 12);
  EXPECT_EQ(operation.tolerance->gather_precision, 8);
  EXPECT_EQ(operation.tolerance->bound_ppm, 123'456U);
  EXPECT_EQ(operation.tolerance->min_planes, 2);
  EXPECT_TRUE(operation.tolerance->lossy_gather);
  EXPECT_EQ(operation.tolerance->least_contributors, 0.75);
}

TEST(Call, HasItsFieldsAtFixedPlaces) {
  const CallBytes bytes = encode_call(tolerant_call());
  const CallBytes expected = {1,  0, 3, 1, 0,    5,    0, 0, 5, 4, 3, 2, 1, 0, 0,    0,
                              12, 8, 2, 3, 0x40, 0xE2, 1, 0, 0, 0, 0, 0, 0, 0, 0xE8, 0x3F};
  EXPECT_EQ(bytes, expected);
  Call exact;
  exact.operation.kind = Kind::kBroadcast;
  exact.operation.root = 0x0203;
  const CallBytes plain = encode_call(exact);
  EXPECT_EQ(plain[1], 3);
  EXPECT_EQ(plain[6], 3);
  EXPECT_EQ(plain[7], 2);
  EXPECT_FALSE(parse_call(plain)->operation.tolerance.has_value());
}

TEST(Call, WithNumbersOutsideTheirRangesIsRefused) {
  const CallBytes good = encode_call(tolerant_call());
  EXPECT_FALSE(parse_call(base::ByteView(good).first(31)).ok());
  for (const std::size_t at : {0, 1, 2, 3, 4, 5, 19}) {
    CallBytes bad = good;
    bad[at] = 0x7F;
    EXPECT_FALSE(parse_call(bad).ok()) << "byte " << at;
  }
  CallBytes without_flag = good;
  without_flag[19] = 0;
  EXPECT_FALSE(parse_call(without_flag).ok());
}

TEST(Call, IsLikeAnotherWhateverItsPriority) {
  const Call call = tolerant_call();
  Call other = call;
  other.priority = 0;
  other.operation.tolerance->feedback_tensor = 9;  // a worker's own business
  EXPECT_TRUE(are_alike(call, other));
  other.operation.count += 1;
  EXPECT_FALSE(are_alike(call, other));
  other = call;
  other.operation.tolerance->bound_ppm = 0;
  EXPECT_FALSE(are_alike(call, other));
}

}  // namespace
}  // namespace spillway::collective
