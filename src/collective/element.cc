// SPDX-License-Identifier: Apache-2.0
#include "collective/element.h"

#include <array>

#include "base/check.h"

namespace spillway::collective {
namespace {

struct TypeFacts {
  std::size_t size;
  bool floating;
  const char* name;
  const char* nccl_tests_name;
};

// In the order of the enumerations.
constexpr std::array<TypeFacts, kDataTypes> kTypes{{{4, true, "float32", "float"},
                                                    {8, true, "float64", "double"},
                                                    {2, true, "float16", "half"},
                                                    {2, true, "bfloat16", "bfloat16"},
                                                    {4, false, "int32", "int32"},
                                                    {8, false, "int64", "int64"}}};
constexpr std::array<const char*, kReduceOps> kOpNames{"sum", "average", "min", "max"};

const TypeFacts& facts(DataType type) {
  const auto index = static_cast<std::size_t>(type);
  SPILLWAY_CHECK(index < kDataTypes);
  return kTypes[index];
}

}  // namespace

std::size_t element_size(DataType type) {
  return facts(type).size;
}

bool is_floating(DataType type) {
  return facts(type).floating;
}

const char* data_type_name(DataType type) {
  return facts(type).name;
}

const char* nccl_tests_name(DataType type) {
  return facts(type).nccl_tests_name;
}

const char* reduce_op_name(ReduceOp op) {
  const auto index = static_cast<std::size_t>(op);
  SPILLWAY_CHECK(index < kReduceOps);
  return kOpNames[index];
}

}  // namespace spillway::collective
