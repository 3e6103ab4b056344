// SPDX-License-Identifier: Apache-2.0
#include "collective/element.h"

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

}  // namespace
}  // namespace spillway::collective
