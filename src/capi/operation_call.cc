// SPDX-License-Identifier: Apache-2.0
#include "capi/operation_call.h"

#include <fmt/format.h>

#include <limits>

#include "capi/sized_struct.h"

namespace spillway::capi {
namespace {

using collective::Algorithm;
using collective::DataType;
using collective::ReduceOp;
using collective::Tolerance;

static_assert(SPILLWAY_FLOAT32 == static_cast<int>(DataType::kFloat32) &&
              SPILLWAY_FLOAT64 == static_cast<int>(DataType::kFloat64) &&
              SPILLWAY_FLOAT16 == static_cast<int>(DataType::kFloat16) &&
              SPILLWAY_BFLOAT16 == static_cast<int>(DataType::kBfloat16) &&
              SPILLWAY_INT32 == static_cast<int>(DataType::kInt32) &&
              SPILLWAY_INT64 == static_cast<int>(DataType::kInt64) && collective::kDataTypes == 6);
static_assert(SPILLWAY_SUM == static_cast<int>(ReduceOp::kSum) &&
              SPILLWAY_AVERAGE == static_cast<int>(ReduceOp::kAverage) &&
              SPILLWAY_MIN == static_cast<int>(ReduceOp::kMin) &&
              SPILLWAY_MAX == static_cast<int>(ReduceOp::kMax) && collective::kReduceOps == 4);
static_assert(SPILLWAY_ALGORITHM_AUTOMATIC == static_cast<int>(Algorithm::kAutomatic) &&
              SPILLWAY_ALGORITHM_DIRECT == static_cast<int>(Algorithm::kDirect) &&
              SPILLWAY_ALGORITHM_RING == static_cast<int>(Algorithm::kRing) &&
              SPILLWAY_ALGORITHM_TREE == static_cast<int>(Algorithm::kTree) &&
              SPILLWAY_ALGORITHM_SERVERS == static_cast<int>(Algorithm::kServers) &&
              collective::kAlgorithms == 5);

constexpr std::uint32_t kMostPlanes = 32;

base::Status check(const OperationCall& call) {
  if (static_cast<unsigned>(call.type) >= collective::kDataTypes) {
    return base::invalid_argument(fmt::format("data type {} is unknown; see spillway_data_type",
                                              static_cast<int>(call.type)));
  }
  if (static_cast<unsigned>(call.op) >= collective::kReduceOps) {
    return base::invalid_argument(
        fmt::format("reduction {} is unknown; see spillway_reduction", static_cast<int>(call.op)));
  }
  if (call.root > std::numeric_limits<std::uint16_t>::max()) {
    return base::invalid_argument(fmt::format("there is no rank {}", call.root));
  }
  return {};
}

base::Status check(const spillway_operation_options& options) {
  if (options.priority >= SPILLWAY_PRIORITIES) {
    return base::invalid_argument(
        fmt::format("priority {} is outside 0 to 7; 7 goes first", options.priority));
  }
  if (options.algorithm >= collective::kAlgorithms) {
    return base::invalid_argument(
        fmt::format("algorithm {} is unknown; see spillway_algorithm", options.algorithm));
  }
  if (options.precision > kMostPlanes || options.gather_precision > kMostPlanes ||
      options.min_planes > kMostPlanes) {
    return base::invalid_argument(
        "precision, gather_precision and min_planes are at most 32 bits per value");
  }
  return {};
}

Tolerance tolerance_from(const spillway_operation_options& options) {
  return {.precision = static_cast<std::uint8_t>(options.precision),
          .gather_precision = static_cast<std::uint8_t>(options.gather_precision),
          .bound_ppm = options.loss_ppm,
          .min_planes = static_cast<std::uint8_t>(options.min_planes),
          .lossy_gather = options.lossy_gather != 0,
          .feedback_tensor = options.feedback_tensor,
          .least_contributors = options.least_contributors};
}

}  // namespace

spillway_operation_options default_operation_options() {
  const runtime::OperationOptions plain;
  const Tolerance tolerance;
  spillway_operation_options options{};
  options.size = sizeof(options);
  options.priority = plain.priority;
  options.precision = tolerance.precision;
  options.gather_precision = tolerance.gather_precision;
  options.loss_ppm = tolerance.bound_ppm;
  options.min_planes = tolerance.min_planes;
  return options;
}

base::Result<spillway_operation_options> read_options(const spillway_operation_options* given) {
  return read_sized(given, default_operation_options(), "spillway_operation_options");
}

base::Result<runtime::OperationOptions> operation_options_from(
    const OperationCall& call, const spillway_operation_options& options) {
  if (base::Status status = check(call); !status.ok()) {
    return status;
  }
  if (base::Status status = check(options); !status.ok()) {
    return status;
  }
  runtime::OperationOptions made;
  made.operation.kind = call.kind;
  made.operation.type = static_cast<DataType>(call.type);
  made.operation.op = static_cast<ReduceOp>(call.op);
  made.operation.count = call.count;
  made.operation.root = static_cast<std::uint16_t>(call.root);
  made.operation.algorithm = static_cast<Algorithm>(options.algorithm);
  if (options.tolerant != 0) {
    made.operation.tolerance = tolerance_from(options);
  }
  made.input = call.send;
  made.output = call.receive;
  made.priority = static_cast<std::uint8_t>(options.priority);
  return made;
}

}  // namespace spillway::capi
