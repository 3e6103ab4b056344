// SPDX-License-Identifier: Apache-2.0
#include "collective/operation.h"

#include <fmt/format.h>

#include <array>

#include "base/check.h"
#include "base/random.h"
#include "collective/capabilities.h"
#include "wire/packet.h"

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
                                                    {8, false, "int64", "int64"},
                                                    {1, false, "int8", "int8"},
                                                    {1, false, "uint8", "uint8"}}};
constexpr std::array<const char*, kReduceOps> kOpNames{"sum",     "average", "min",    "max",
                                                       "product", "bit_and", "bit_or", "bit_xor"};

const TypeFacts& facts(DataType type) {
  const auto index = static_cast<std::size_t>(type);
  SPILLWAY_CHECK(index < kDataTypes);
  return kTypes[index];
}

constexpr std::array<const char*, kKinds> kKindNames = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather",
    "scatter",    "all_to_all",     "barrier",    "send",      "receive"};
constexpr std::array<const char*, kAlgorithms> kAlgorithmNames = {
    "automatic", "direct", "ring", "tree", "servers", "hierarchical", "switch"};
constexpr std::array<const char*, kCodecs> kCodecNames = {"planes", "levels", "blocks", "entropy",
                                                          "sketch"};
constexpr std::size_t kMaxBytes = std::size_t{1} << 40;

// Bits of a signature: kind 63..58, type 57..52, reduction 51..48, hash of the rest 47..0. For a
// send, the upper half of that hash is the tag.
constexpr unsigned kKindShift = 58;
constexpr unsigned kTypeShift = 52;
constexpr unsigned kOpShift = 48;
constexpr unsigned kTagShift = kOpShift - kTagBits;
constexpr std::uint64_t kSignatureKey = 0x5349474E41545552ULL;

bool has_root(Kind kind) {
  return kind == Kind::kBroadcast || kind == Kind::kReduce || kind == Kind::kGather ||
         kind == Kind::kScatter;
}

std::uint64_t low_bits(std::uint64_t number, unsigned bits) {
  return number & ((std::uint64_t{1} << bits) - 1);
}

bool has_elements(Kind kind) {
  return kind != Kind::kBarrier;
}

bool is_per_million(std::uint32_t number) {
  return number <= 1'000'000;
}

// The ranges of a tolerance that are those of every codec.
base::Status validate_tolerance(const Tolerance& tolerance) {
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
  if (!is_per_million(tolerance.loss_bound_ppm)) {
    return base::invalid_argument(
        fmt::format("a loss bound of {} per million is outside 0 to 1,000,000, which is all",
                    tolerance.loss_bound_ppm));
  }
  if (!is_per_million(tolerance.expendable())) {
    return base::invalid_argument(
        fmt::format("{} per million of expendable packets is outside 0 to 1,000,000, which is all",
                    tolerance.expendable()));
  }
  if (tolerance.importance.value_or(0) > SPILLWAY_IMPORTANCE_REQUIRED) {
    return base::invalid_argument(fmt::format(
        "importance {} is outside 0 to 7; leave it away to go by energy", *tolerance.importance));
  }
  if (!(tolerance.least_contributors >= 0.0) || tolerance.least_contributors > 1.0) {
    return base::invalid_argument(
        fmt::format("least_contributors {} is a share of the ranks, from 0 to 1",
                    tolerance.least_contributors));
  }
  return {};
}

base::Status validate_ranks(const Operation& operation, const Group& group) {
  const bool names_rank = has_root(operation.kind) || is_point_to_point(operation.kind);
  const bool takes_any = operation.kind == Kind::kReceive && operation.root == kAnyRank;
  if (names_rank && !takes_any && operation.root >= group.workers()) {
    return base::invalid_argument(fmt::format("{} names rank {}, but ranks go from 0 to {}",
                                              kind_name(operation.kind), operation.root,
                                              group.workers() - 1));
  }
  if (is_point_to_point(operation.kind) && operation.root == group.rank) {
    return base::invalid_argument(
        fmt::format("rank {} cannot {} to or from itself", group.rank, kind_name(operation.kind)));
  }
  if (takes_any && (operation.count == 0 || group.workers() == 1)) {
    return base::invalid_argument(
        group.workers() == 1 ? "this rank is the only one: there is nobody to receive from"
                             : "a receive of nothing has no sender: name a rank, or leave it away");
  }
  return {};
}

base::Status validate_reduction(const Operation& operation) {
  if (!is_reduction(operation.kind) || has_reduction(operation.type, operation.op)) {
    return {};
  }
  return base::invalid_argument(fmt::format(
      "there is no {} of {}: {}", reduce_op_name(operation.op), data_type_name(operation.type),
      operation.op == ReduceOp::kAverage ? "its sums would not fit; use sum, or a wider type"
                                         : "it is of integers"));
}

std::string describe_tolerance(const Tolerance& tolerance) {
  std::string text =
      fmt::format("; {}, {}/{} bits, loss bound {} ppm", codec_name(tolerance.codec),
                  tolerance.precision, tolerance.gather_precision, tolerance.loss_bound_ppm);
  if (tolerance.min_planes != 1) {
    text += fmt::format(", at least {} planes", tolerance.min_planes);
  }
  if (tolerance.least_contributors > 0.0) {
    text += fmt::format(", {:g} of the ranks", tolerance.least_contributors);
  }
  text += tolerance.feedback_tensor != 0 ? ", error feedback" : "";
  text += tolerance.predicts_scale ? ", predicted scale" : "";
  return text;
}

// The part of a tolerance that both ends of a message must agree on.
std::uint32_t tolerance_word(const Operation& operation) {
  if (!operation.tolerance) {
    return 0;
  }
  const Tolerance& tolerance = *operation.tolerance;
  return 1U << 31 | std::uint32_t{tolerance.precision} << 8 | tolerance.gather_precision |
         (tolerance.least_contributors > 0.0 ? 1U << 17 : 0) |
         (tolerance.feedback_tensor != 0 ? 1U << 18 : 0) |
         (tolerance.predicts_scale ? 1U << 19 : 0) |
         static_cast<std::uint32_t>(tolerance.codec) << 20;
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

bool has_reduction(DataType type, ReduceOp op) {
  const bool is_of_bits =
      op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
  return (!is_of_bits || !is_floating(type)) &&
         (op != ReduceOp::kAverage || element_size(type) > 1);
}

const char* kind_name(Kind kind) {
  return kKindNames[static_cast<unsigned>(kind)];
}

const char* algorithm_name(Algorithm algorithm) {
  return kAlgorithmNames[static_cast<unsigned>(algorithm)];
}

const char* codec_name(Codec codec) {
  return kCodecNames[static_cast<unsigned>(codec)];
}

std::string rank_name(const Group& group, std::uint16_t rank) {
  return rank < group.workers()
             ? fmt::format("rank {}", rank)
             : fmt::format("parameter server {} (rank {})", rank - group.workers(), rank);
}

bool is_point_to_point(Kind kind) {
  return kind == Kind::kSend || kind == Kind::kReceive;
}

bool is_reduction(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduceScatter || kind == Kind::kReduce;
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

base::Status validate(const Operation& operation, const Group& group, const GroupPackets& packets) {
  if (operation.priority >= SPILLWAY_PRIORITIES) {
    return base::invalid_argument(
        fmt::format("priority {} is outside 0 to 7; 7 goes first", operation.priority));
  }
  if (operation.tag > kMaxTag) {
    return base::invalid_argument(fmt::format("tag {} is outside 0 to {}", operation.tag, kMaxTag));
  }
  if (base::Status status = validate_ranks(operation, group); !status.ok()) {
    return status;
  }
  if (base::Status status = validate_reduction(operation); !status.ok()) {
    return status;
  }
  if (operation.tolerance) {
    if (base::Status status = validate_tolerance(*operation.tolerance); !status.ok()) {
      return status;
    }
  }
  if (base::Status status = check_capabilities(operation, group, packets); !status.ok()) {
    return status;
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

std::uint64_t signature(const Operation& operation) {
  const Kind kind = operation.kind == Kind::kReceive ? Kind::kSend : operation.kind;
  const auto type = has_elements(kind) ? static_cast<std::uint64_t>(operation.type) : 0U;
  const auto op = is_reduction(kind) ? static_cast<std::uint64_t>(operation.op) : 0U;
  const std::uint32_t root = has_root(kind) ? operation.root : 0U;
  const base::RandomBlock hash = base::random_block(
      kSignatureKey, {static_cast<std::uint32_t>(operation.count),
                      static_cast<std::uint32_t>(std::uint64_t{operation.count} >> 32), root,
                      static_cast<std::uint32_t>(operation.algorithm) ^ tolerance_word(operation)});
  const std::uint64_t words = std::uint64_t{hash[1]} << 32 | hash[0];
  const std::uint64_t rest =
      kind == Kind::kSend ? std::uint64_t{operation.tag} << kTagShift | low_bits(words, kTagShift)
                          : low_bits(words, kOpShift);
  return static_cast<std::uint64_t>(kind) << kKindShift | type << kTypeShift | op << kOpShift |
         rest;
}

std::uint32_t tag_of(std::uint64_t signature) {
  return static_cast<std::uint32_t>(low_bits(signature >> kTagShift, kTagBits));
}

std::string describe_signature(std::uint64_t signature) {
  const std::uint64_t kind = signature >> kKindShift;
  const std::uint64_t type = low_bits(signature >> kTypeShift, kKindShift - kTypeShift);
  const std::uint64_t op = low_bits(signature >> kOpShift, kTypeShift - kOpShift);
  if (kind >= kKinds || type >= kDataTypes) {
    return "an unknown operation";
  }
  const std::string name = kind_name(static_cast<Kind>(kind));
  if (!has_elements(static_cast<Kind>(kind))) {
    return name;
  }
  const std::string what = name + " of " + data_type_name(static_cast<DataType>(type));
  return is_reduction(static_cast<Kind>(kind))
             ? what + " (" + reduce_op_name(static_cast<ReduceOp>(op)) + ")"
             : what;
}

std::string describe(const Operation& operation) {
  std::string text = kind_name(operation.kind);
  if (has_elements(operation.kind)) {
    text += fmt::format(" of {} {}", operation.count, data_type_name(operation.type));
  }
  if (is_reduction(operation.kind)) {
    text += fmt::format(" ({})", reduce_op_name(operation.op));
  }
  if (has_root(operation.kind)) {
    text += fmt::format(", root {}", operation.root);
  }
  if (operation.tag != 0) {
    text += fmt::format(", tag {}", operation.tag);
  }
  return text;
}

std::string describe_call(const Operation& operation) {
  std::string text = describe(operation);
  if (operation.algorithm != Algorithm::kAutomatic) {
    text += fmt::format(", by {}", algorithm_name(operation.algorithm));
  }
  return operation.tolerance ? text + describe_tolerance(*operation.tolerance) : text;
}

}  // namespace spillway::collective
