// SPDX-License-Identifier: Apache-2.0
//
// What `spillway bench allreduce` measures; the same at every rank. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collective/operation.h"

namespace spillway::cli {

struct AllreduceSettings {
  collective::DataType type = collective::DataType::kFloat32;
  collective::ReduceOp op = collective::ReduceOp::kSum;
  collective::Algorithm algorithm = collective::Algorithm::kAutomatic;
  std::optional<collective::Tolerance> tolerance{};  // nothing: exact
  std::uint8_t priority = 3;
  std::vector<std::size_t> sizes{};  // bytes; whole elements, at least one
  unsigned iterations = 20;
  unsigned warmup = 5;
  unsigned checks = 1;     // operations whose results are compared
  unsigned in_flight = 1;  // operations at once

  collective::Operation operation_of(std::size_t bytes) const {
    collective::Operation operation;
    operation.type = type;
    operation.op = op;
    operation.algorithm = algorithm;
    operation.tolerance = tolerance;
    operation.count = bytes / collective::element_size(type);
    return operation;
  }
};

// As nccl-tests calls it.
inline const char* redop_name(collective::ReduceOp op) {
  return op == collective::ReduceOp::kAverage ? "avg" : collective::reduce_op_name(op);
}

}  // namespace spillway::cli
