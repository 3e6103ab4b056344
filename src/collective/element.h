// SPDX-License-Identifier: Apache-2.0
//
// What a collective's buffers are made of, and what is done with elements that meet.
//
// The numbers are part of the contract between ranks: new ones go to the end, before the count is
// raised, and none is ever used again for something else. Elements lie in memory as the machine has
// them, which is little-endian everywhere Spillway runs. Pure functions: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway::collective {

enum class DataType : std::uint8_t { kFloat32, kFloat64, kFloat16, kBfloat16, kInt32, kInt64 };
inline constexpr std::size_t kDataTypes = 6;

enum class ReduceOp : std::uint8_t { kSum, kAverage, kMin, kMax };
inline constexpr std::size_t kReduceOps = 4;

std::size_t element_size(DataType type);  // bytes
bool is_floating(DataType type);          // what goes through a lossy code, and what may be NaN

const char* data_type_name(DataType type);   // "float32", "bfloat16", ...
const char* nccl_tests_name(DataType type);  // what nccl-tests calls it: "float", "half", ...
const char* reduce_op_name(ReduceOp op);     // "sum", "average", ...

}  // namespace spillway::collective
