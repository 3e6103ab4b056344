// SPDX-License-Identifier: Apache-2.0
#include "collective/operation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace spillway::collective {
namespace {

TEST(Element, SizesAreThoseOfTheTypes) {
  EXPECT_EQ(element_size(DataType::kFloat32), sizeof(float));
  EXPECT_EQ(element_size(DataType::kFloat64), sizeof(double));
  EXPECT_EQ(element_size(DataType::kFloat16), 2U);
  EXPECT_EQ(element_size(DataType::kBfloat16), 2U);
  EXPECT_EQ(element_size(DataType::kInt32), sizeof(std::int32_t));
  EXPECT_EQ(element_size(DataType::kInt64), sizeof(std::int64_t));
  EXPECT_EQ(element_size(DataType::kInt8), 1U);
  EXPECT_EQ(element_size(DataType::kUint8), 1U);
}

TEST(Element, NamesAreThoseOfTheTypes) {
  EXPECT_STREQ(data_type_name(DataType::kFloat16), "float16");
  EXPECT_STREQ(nccl_tests_name(DataType::kFloat16), "half");
  EXPECT_STREQ(nccl_tests_name(DataType::kFloat32), "float");
  EXPECT_STREQ(nccl_tests_name(DataType::kFloat64), "double");
  EXPECT_STREQ(data_type_name(DataType::kInt64), "int64");
  EXPECT_STREQ(reduce_op_name(ReduceOp::kSum), "sum");
  EXPECT_STREQ(reduce_op_name(ReduceOp::kMax), "max");
}

TEST(Element, EveryTypeAndOperationHasANameOfItsOwn) {
  std::set<std::string> names;
  std::set<std::string> nccl_names;
  for (std::size_t type = 0; type < kDataTypes; ++type) {
    names.insert(data_type_name(static_cast<DataType>(type)));
    nccl_names.insert(nccl_tests_name(static_cast<DataType>(type)));
  }
  EXPECT_EQ(names.size(), kDataTypes);
  EXPECT_EQ(nccl_names.size(), kDataTypes);
  std::set<std::string> operations;
  for (std::size_t op = 0; op < kReduceOps; ++op) {
    operations.insert(reduce_op_name(static_cast<ReduceOp>(op)));
  }
  EXPECT_EQ(operations.size(), kReduceOps);
}

TEST(Element, OnlyIntegersAreNotFloating) {
  for (std::size_t index = 0; index < kDataTypes; ++index) {
    const auto type = static_cast<DataType>(index);
    const std::string name = data_type_name(type);
    EXPECT_EQ(is_floating(type), name.find("float") != std::string::npos) << name;
  }
}

// The error of an all-reduce of ten floats after a change; "" for none.
template <typename Change>
std::string wrong_with(Change change, const Group& group = {.rank = 1, .world = 3}) {
  static float memory[10];
  Operation operation{.count = 10, .input = memory, .output = memory};
  change(operation);
  return validate(operation, group).message();
}

TEST(Validate, AnOperationThatMakesSensePasses) {
  EXPECT_EQ(wrong_with([](Operation&) {}), "");
  EXPECT_EQ(wrong_with([](Operation& operation) { operation.tolerance = Tolerance{}; }), "");
}

TEST(Validate, EveryRangeIsNamed) {
  EXPECT_EQ(wrong_with([](Operation& operation) { operation.priority = 8; }),
            "priority 8 is outside 0 to 7; 7 goes first");
  EXPECT_EQ(wrong_with([](Operation& operation) { operation.tag = kMaxTag + 1; }),
            fmt::format("tag {} is outside 0 to {}", kMaxTag + 1, kMaxTag));
  const auto tolerant = [](auto change) {
    return wrong_with([&](Operation& operation) { change(operation.tolerance.emplace()); });
  };
  EXPECT_EQ(tolerant([](Tolerance& tolerance) { tolerance.gather_precision = 33; }),
            "precision 16 and gather_precision 33 are bits per value, from 1 to 32");
  EXPECT_EQ(tolerant([](Tolerance& tolerance) { tolerance.min_planes = 17; }),
            "min_planes 17 is outside 1 to the precision, which is 16");
  EXPECT_EQ(tolerant([](Tolerance& tolerance) { tolerance.loss_bound_ppm = 1'000'001; }),
            "a loss bound of 1000001 per million is outside 0 to 1,000,000, which is all");
  EXPECT_EQ(tolerant([](Tolerance& tolerance) { tolerance.importance = 8; }),
            "importance 8 is outside 0 to 7; leave it away to go by energy");
  EXPECT_EQ(tolerant([](Tolerance& tolerance) { tolerance.expendable_ppm = 1'000'001; }),
            "1000001 per million of expendable packets is outside 0 to 1,000,000, which is all");
  EXPECT_EQ(tolerant([](Tolerance& tolerance) { tolerance.least_contributors = 1.5; }),
            "least_contributors 1.5 is a share of the ranks, from 0 to 1");
  EXPECT_EQ(tolerant([](Tolerance& tolerance) {
              tolerance.codec = Codec::kLevels;
              tolerance.precision = 4;
              tolerance.least_contributors = 0.5;
            }),
            "the codec levels waits for all ranks: leave least_contributors away, or use planes");
}

TEST(Validate, RanksBuffersAndTolerancesMustFitTheKind) {
  EXPECT_NE(wrong_with([](Operation& operation) { operation.input = nullptr; }).find("an input"),
            std::string::npos);
  EXPECT_NE(wrong_with([](Operation& operation) { operation.output = nullptr; }).find("an output"),
            std::string::npos);
  const auto broadcast = [](Operation& operation) {
    operation.kind = Kind::kBroadcast;
    operation.input = nullptr;  // only the root has one
  };
  EXPECT_EQ(wrong_with(broadcast), "");
  EXPECT_NE(wrong_with([&](Operation& operation) { broadcast(operation), operation.root = 3; }),
            "");
  EXPECT_NE(wrong_with([](Operation& operation) {
              operation.kind = Kind::kSend;
              operation.root = 1;
            }),
            "");
  EXPECT_NE(wrong_with([](Operation& operation) {
              operation.type = DataType::kInt32;
              operation.tolerance = Tolerance{};
            }),
            "");
}

TEST(Validate, NotEveryTypeHasEveryReduction) {
  const auto reducing = [](DataType type, ReduceOp op) {
    return wrong_with([&](Operation& operation) {
      operation.type = type;
      operation.op = op;
    });
  };
  EXPECT_EQ(reducing(DataType::kUint8, ReduceOp::kBitXor), "");
  EXPECT_EQ(reducing(DataType::kFloat16, ReduceOp::kProduct), "");
  EXPECT_EQ(reducing(DataType::kFloat32, ReduceOp::kBitAnd),
            "there is no bit_and of float32: it is of integers");
  EXPECT_EQ(reducing(DataType::kInt8, ReduceOp::kAverage),
            "there is no average of int8: its sums would not fit; use sum, or a wider type");
}

TEST(Validate, OnlyAReceiveOfSomethingTakesAnyRank) {
  const auto with_any = [](Kind kind, std::size_t count, const Group& group) {
    return wrong_with(
        [&](Operation& operation) {
          operation.kind = kind;
          operation.root = kAnyRank;
          operation.count = count;
        },
        group);
  };
  EXPECT_EQ(with_any(Kind::kReceive, 5, {.rank = 1, .world = 3}), "");
  EXPECT_NE(with_any(Kind::kReceive, 0, {.rank = 1, .world = 3}), "");
  EXPECT_NE(with_any(Kind::kReceive, 5, {.rank = 0, .world = 1}), "");
  EXPECT_NE(with_any(Kind::kSend, 5, {.rank = 1, .world = 3}), "");
  EXPECT_NE(with_any(Kind::kBroadcast, 5, {.rank = 1, .world = 3}), "");
}

TEST(Signature, HasTheTagInClearAndTellsArgumentsApart) {
  const Operation send{.kind = Kind::kSend, .count = 10, .root = 1, .tag = kMaxTag};
  Operation receive = send;
  receive.kind = Kind::kReceive;
  receive.root = kAnyRank;
  EXPECT_EQ(signature(receive), signature(send));
  EXPECT_EQ(tag_of(signature(send)), kMaxTag);
  receive.tag = 3;
  EXPECT_EQ(tag_of(signature(receive)), 3U);
  EXPECT_NE(signature(receive), signature(send));
  receive = send;
  receive.type = DataType::kUint8;
  EXPECT_NE(signature(receive), signature(send));

  // Which packets may be dropped first is each rank's own choice.
  Operation lossy{.count = 10, .tolerance = Tolerance{}};
  const std::uint64_t before = signature(lossy);
  lossy.tolerance->importance = 7;
  lossy.tolerance->expendable_ppm = 5;
  EXPECT_EQ(signature(lossy), before);

  std::set<std::string> described;
  for (std::size_t op = 0; op < kReduceOps; ++op) {
    described.insert(describe_signature(
        signature({.type = DataType::kInt64, .op = static_cast<ReduceOp>(op), .count = 10})));
  }
  EXPECT_EQ(described.size(), kReduceOps);
}

// A server has no buffers of its own.
TEST(Validate, AServerNeedsNoBuffers) {
  EXPECT_EQ(wrong_with([](Operation& operation) { operation.input = operation.output = nullptr; },
                       {.rank = 2, .world = 3, .servers = 1}),
            "");
}

}  // namespace
}  // namespace spillway::collective
