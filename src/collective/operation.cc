// SPDX-License-Identifier: Apache-2.0
#include "collective/operation.h"

#include <fmt/format.h>

#include <array>

#include "base/check.h"
#include "base/random.h"
#include "wire/traffic_class.h"

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

constexpr std::array<const char*, kKinds> kKindNames = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather",
    "scatter",    "all_to_all",     "barrier",    "send",      "receive"};
constexpr std::array<const char*, kAlgorithms> kAlgorithmNames = {"automatic", "direct", "ring",
                                                                  "tree", "servers"};
constexpr std::size_t kMaxBytes = std::size_t{1} << 40;

// Bits of a signature: kind 15..12, type 11..9, reduction 8..7, hash of the rest 6..0.
constexpr unsigned kHashBits = 7;
constexpr std::uint64_t kSignatureKey = 0x5349474E41545552ULL;

bool reduces(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduceScatter || kind == Kind::kReduce;
}

bool has_root(Kind kind) {
  return kind == Kind::kBroadcast || kind == Kind::kReduce || kind == Kind::kGather ||
         kind == Kind::kScatter;
}

bool has_elements(Kind kind) {
  return kind != Kind::kBarrier;
}

base::Status validate_tolerance(const Operation& operation) {
  const Tolerance& tolerance = *operation.tolerance;
  const bool adds = operation.op == ReduceOp::kSum || operation.op == ReduceOp::kAverage;
  if (operation.kind != Kind::kAllReduce || !is_floating(operation.type) || !adds) {
    return base::invalid_argument(
        "only an all_reduce of floating-point numbers with sum or average can lose anything; leave "
        "the tolerance away");
  }
  const auto is_precision = [](unsigned bits) { return bits >= 1 && bits <= 32; };
  if (!is_precision(tolerance.precision) || !is_precision(tolerance.gather_precision)) {
    return base::invalid_argument(
        fmt::format("precision {} and gather_precision {} are bits per value, from 1 to 32",
                    tolerance.precision, tolerance.gather_precision));
  }
  if (tolerance.min_planes < 1 || tolerance.min_planes > tolerance.precision) {
    return base::invalid_argument(
        fmt::format("min_planes {} is outside 1 to the precision, which is {}",
                    tolerance.min_planes, tolerance.precision));
  }
  if (tolerance.loss_bound_ppm > 1'000'000) {
    return base::invalid_argument(
        fmt::format("a loss bound of {} per million is outside 0 to 1,000,000, which is all",
                    tolerance.loss_bound_ppm));
  }
  if (!(tolerance.least_contributors >= 0.0) || tolerance.least_contributors > 1.0) {
    return base::invalid_argument(
        fmt::format("least_contributors {} is a share of the ranks, from 0 to 1",
                    tolerance.least_contributors));
  }
  return {};
}

// What of a tolerance both ends of a message must know alike.
std::uint32_t tolerance_word(const Operation& operation) {
  if (!operation.tolerance) {
    return 0;
  }
  const Tolerance& tolerance = *operation.tolerance;
  return 1U << 31 | std::uint32_t{tolerance.precision} << 8 | tolerance.gather_precision |
         (tolerance.lossy_gather ? 1U << 16 : 0) |
         (tolerance.least_contributors > 0.0 ? 1U << 17 : 0);
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

const char* kind_name(Kind kind) {
  return kKindNames[static_cast<unsigned>(kind)];
}

const char* algorithm_name(Algorithm algorithm) {
  return kAlgorithmNames[static_cast<unsigned>(algorithm)];
}

std::string rank_name(const Group& group, std::uint16_t rank) {
  return rank < group.workers()
             ? fmt::format("rank {}", rank)
             : fmt::format("parameter server {} (rank {})", rank - group.workers(), rank);
}

bool is_point_to_point(Kind kind) {
  return kind == Kind::kSend || kind == Kind::kReceive;
}

std::size_t input_bytes(const Operation& operation, const Group& group) {
  if (group.is_server()) {
    return 0;
  }
  switch (operation.kind) {
    case Kind::kReduceScatter:
    case Kind::kAllToAll:
      return operation.bytes() * group.workers();
    case Kind::kScatter:
      return group.rank == operation.root ? operation.bytes() * group.workers() : 0;
    case Kind::kBroadcast:
      return group.rank == operation.root ? operation.bytes() : 0;
    case Kind::kBarrier:
    case Kind::kReceive:
      return 0;
    default:
      return operation.bytes();
  }
}

std::size_t output_bytes(const Operation& operation, const Group& group) {
  if (group.is_server()) {
    return 0;
  }
  switch (operation.kind) {
    case Kind::kAllGather:
    case Kind::kAllToAll:
      return operation.bytes() * group.workers();
    case Kind::kGather:
      return group.rank == operation.root ? operation.bytes() * group.workers() : 0;
    case Kind::kReduce:
      return group.rank == operation.root ? operation.bytes() : 0;
    case Kind::kBarrier:
    case Kind::kSend:
      return 0;
    default:
      return operation.bytes();
  }
}

base::Status validate(const Operation& operation, const Group& group) {
  if (operation.priority >= SPILLWAY_PRIORITIES) {
    return base::invalid_argument(
        fmt::format("priority {} is outside 0 to 7; 7 goes first", operation.priority));
  }
  const bool names_rank = has_root(operation.kind) || is_point_to_point(operation.kind);
  if (names_rank && operation.root >= group.workers()) {
    return base::invalid_argument(fmt::format("{} names rank {}, but ranks go from 0 to {}",
                                              kind_name(operation.kind), operation.root,
                                              group.workers() - 1));
  }
  if (is_point_to_point(operation.kind) && operation.root == group.rank) {
    return base::invalid_argument(
        fmt::format("rank {} cannot {} to or from itself", group.rank, kind_name(operation.kind)));
  }
  if (operation.tolerance) {
    if (base::Status status = validate_tolerance(operation); !status.ok()) {
      return status;
    }
  }
  if (operation.count > kMaxBytes / element_size(operation.type) / group.world) {
    return base::invalid_argument(
        fmt::format("{} elements are too many for one operation; split it", operation.count));
  }
  const bool lacks_input = operation.input == nullptr && input_bytes(operation, group) > 0;
  const bool lacks_output = operation.output == nullptr && output_bytes(operation, group) > 0;
  if (lacks_input || lacks_output) {
    return base::invalid_argument(fmt::format("{} needs {} at this rank", describe(operation),
                                              lacks_input ? "an input" : "an output"));
  }
  return {};
}

std::uint16_t signature(const Operation& operation) {
  const Kind kind = operation.kind == Kind::kReceive ? Kind::kSend : operation.kind;
  const auto type = has_elements(kind) ? static_cast<unsigned>(operation.type) : 0U;
  const auto op = reduces(kind) ? static_cast<unsigned>(operation.op) : 0U;
  const std::uint32_t root = has_root(kind) ? operation.root : 0U;
  const base::RandomBlock hash = base::random_block(
      kSignatureKey, {static_cast<std::uint32_t>(operation.count),
                      static_cast<std::uint32_t>(std::uint64_t{operation.count} >> 32), root,
                      static_cast<std::uint32_t>(operation.algorithm) ^ tolerance_word(operation)});
  return static_cast<std::uint16_t>(static_cast<unsigned>(kind) << 12 | type << 9 |
                                    op << kHashBits | (hash[0] & ((1U << kHashBits) - 1)));
}

std::string describe_signature(std::uint16_t signature) {
  const unsigned kind = signature >> 12;
  const unsigned type = (signature >> 9) & 7U;
  const unsigned op = (signature >> kHashBits) & 3U;
  if (kind >= kKinds || type >= kDataTypes) {
    return "an unknown operation";
  }
  const std::string name = kind_name(static_cast<Kind>(kind));
  if (!has_elements(static_cast<Kind>(kind))) {
    return name;
  }
  const std::string what = name + " of " + data_type_name(static_cast<DataType>(type));
  return reduces(static_cast<Kind>(kind))
             ? what + " (" + reduce_op_name(static_cast<ReduceOp>(op)) + ")"
             : what;
}

std::string describe(const Operation& operation) {
  std::string text = kind_name(operation.kind);
  if (has_elements(operation.kind)) {
    text += fmt::format(" of {} {}", operation.count, data_type_name(operation.type));
  }
  if (reduces(operation.kind)) {
    text += fmt::format(" ({})", reduce_op_name(operation.op));
  }
  if (has_root(operation.kind)) {
    text += fmt::format(", root {}", operation.root);
  }
  return text;
}

}  // namespace spillway::collective
