// SPDX-License-Identifier: Apache-2.0
#include "collective/capabilities.h"

#include <fmt/format.h>

#include <limits>
#include <vector>

#include "codec/sketch/support.h"
#include "collective/halves.h"
#include "wire/sum_packet.h"

namespace spillway::collective {
namespace {

constexpr std::uint16_t kAnyNumberOfRanks = std::numeric_limits<std::uint16_t>::max();

constexpr CapabilitySet<unsigned> precisions_between(unsigned least, unsigned most) {
  CapabilitySet<unsigned> set;
  for (unsigned bits = least; bits <= most; ++bits) {
    set.bits |= CapabilitySet<unsigned>::bit(bits);
  }
  return set;
}

constexpr CapabilitySet<Kind> kAllKinds{Kind::kAllReduce, Kind::kReduceScatter, Kind::kAllGather,
                                        Kind::kBroadcast, Kind::kReduce,        Kind::kGather,
                                        Kind::kScatter,   Kind::kAllToAll,      Kind::kBarrier,
                                        Kind::kSend,      Kind::kReceive};
constexpr CapabilitySet<Kind> kAllReduceAlone{Kind::kAllReduce};
constexpr CapabilitySet<Kind> kHalvesToo{Kind::kAllReduce, Kind::kReduceScatter, Kind::kAllGather};
constexpr CapabilitySet<Algorithm> kExactAlgorithms{
    Algorithm::kAutomatic, Algorithm::kDirect,  Algorithm::kRing,
    Algorithm::kTree,      Algorithm::kServers, Algorithm::kHierarchical};
constexpr CapabilitySet<Algorithm> kDirectAlone{Algorithm::kAutomatic, Algorithm::kDirect,
                                                Algorithm::kServers};
constexpr CapabilitySet<Algorithm> kDirectOrSwitch{Algorithm::kAutomatic, Algorithm::kDirect,
                                                   Algorithm::kServers, Algorithm::kSwitch};
constexpr CapabilitySet<Algorithm> kDirectOrRing{Algorithm::kAutomatic, Algorithm::kDirect,
                                                 Algorithm::kRing};
constexpr CapabilitySet<DataType> kAllTypes{
    DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBfloat16,
    DataType::kInt32,   DataType::kInt64,   DataType::kInt8,    DataType::kUint8};
constexpr CapabilitySet<DataType> kFloats{DataType::kFloat32, DataType::kFloat64,
                                          DataType::kFloat16, DataType::kBfloat16};
constexpr CapabilitySet<DataType> kDeviceFloats{DataType::kFloat32, DataType::kFloat16,
                                                DataType::kBfloat16};
constexpr CapabilitySet<ReduceOp> kAllReductions{
    ReduceOp::kSum,     ReduceOp::kAverage, ReduceOp::kMin,   ReduceOp::kMax,
    ReduceOp::kProduct, ReduceOp::kBitAnd,  ReduceOp::kBitOr, ReduceOp::kBitXor};
constexpr CapabilitySet<ReduceOp> kSums{ReduceOp::kSum, ReduceOp::kAverage};

constexpr std::array<Capabilities, kCapabilityRows> kTable{{
    {.codec = "planes",
     .kinds = kHalvesToo,
     .algorithms = kDirectAlone,
     .types = kFloats,
     .reductions = kSums,
     .device_types = kDeviceFloats,
     .precisions = precisions_between(1, 32),
     .ranks = kAnyNumberOfRanks,
     .values = 0,
     .servers = true,
     .encryption = true,
     .losses = true,
     .least_contributors = true,
     .error_feedback = true,
     .packet_bytes = 0},
    {.codec = "levels",
     .kinds = kAllReduceAlone,
     .algorithms = kDirectOrSwitch,
     .types = kFloats,
     .reductions = kSums,
     .device_types = kDeviceFloats,
     .precisions = {2, 3, 4, 8},
     .ranks = SPILLWAY_SUM_RANKS,
     .values = 0,
     .servers = true,
     .encryption = false,
     .losses = true,
     .least_contributors = false,
     .error_feedback = true,
     .packet_bytes = SPILLWAY_SUM_PACKET},
    {.codec = "blocks",
     .kinds = kAllReduceAlone,
     .algorithms = kDirectOrSwitch,
     .types = kFloats,
     .reductions = kSums,
     .device_types = {},
     .precisions = {},
     .ranks = SPILLWAY_SUM_RANKS,
     .values = 0,
     .servers = true,
     .encryption = false,
     .losses = true,
     .least_contributors = false,
     .error_feedback = true,
     .packet_bytes = SPILLWAY_SUM_PACKET},
    {.codec = "entropy",
     .kinds = kHalvesToo,
     .algorithms = kDirectOrRing,
     .types = kFloats,
     .reductions = kSums,
     .device_types = {},
     .precisions = precisions_between(kLeastEntropyPrecision, kMostEntropyPrecision),
     .ranks = kMostEntropyRanks,
     .values = 0,
     .servers = false,
     .encryption = true,
     .losses = false,
     .least_contributors = false,
     .error_feedback = true,
     .packet_bytes = 0},
    {.codec = "sketch",
     .kinds = kAllReduceAlone,
     .algorithms = kDirectOrRing,
     .types = kFloats,
     .reductions = kSums,
     .device_types = {},
     .precisions = precisions_between(kLeastEntropyPrecision, kMostEntropyPrecision),
     .ranks = kMostEntropyRanks,
     .values = codec::sketch::kMaxSupportLength,
     .servers = false,
     .encryption = true,
     .losses = false,
     .least_contributors = false,
     .error_feedback = true,
     .packet_bytes = 0},
    {.codec = "exact",
     .kinds = kAllKinds,
     .algorithms = kExactAlgorithms,
     .types = kAllTypes,
     .reductions = kAllReductions,
     .device_types = kAllTypes,
     .precisions = {},
     .ranks = kAnyNumberOfRanks,
     .values = 0,
     .servers = true,
     .encryption = true,
     .losses = false,
     .least_contributors = false,
     .error_feedback = false,
     .packet_bytes = 0},
}};

// ------------------------------------------------------------------ sets as words

// "a", "a or b", "a, b or c".
std::string enumerated(const std::vector<std::string>& names, const char* last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += i == 0 ? "" : i + 1 == names.size() ? fmt::format(" {} ", last) : ", ";
    text += names[i];
  }
  return text;
}

std::vector<std::string> names_of(const CapabilitySet<Algorithm>& set) {
  std::vector<std::string> names;
  for (unsigned i = 0; i < kAlgorithms; ++i) {
    // Servers are used if and only if there are some: nobody chooses them.
    if (const auto one = static_cast<Algorithm>(i);
        set.has(one) && one != Algorithm::kAutomatic && one != Algorithm::kServers) {
      names.emplace_back(algorithm_name(one));
    }
  }
  return names;
}

std::vector<std::string> names_of(const CapabilitySet<Kind>& set) {
  std::vector<std::string> names;
  for (unsigned i = 0; i < kKinds; ++i) {
    if (const auto one = static_cast<Kind>(i); set.has(one)) {
      names.emplace_back(kind_name(one));
    }
  }
  return names;
}

std::vector<std::string> names_of(const CapabilitySet<DataType>& set) {
  std::vector<std::string> names;
  for (unsigned i = 0; i < kDataTypes; ++i) {
    if (const auto one = static_cast<DataType>(i); set.has(one)) {
      names.emplace_back(data_type_name(one));
    }
  }
  return names;
}

std::vector<std::string> names_of(const CapabilitySet<ReduceOp>& set) {
  std::vector<std::string> names;
  for (unsigned i = 0; i < kReduceOps; ++i) {
    if (const auto one = static_cast<ReduceOp>(i); set.has(one)) {
      names.emplace_back(reduce_op_name(one));
    }
  }
  return names;
}

std::vector<unsigned> members_of(const CapabilitySet<unsigned>& set) {
  std::vector<unsigned> numbers;
  for (unsigned bits = 0; bits < 64; ++bits) {
    if (set.has(bits)) {
      numbers.push_back(bits);
    }
  }
  return numbers;
}

// "2 to 16", or "2, 3, 4 and 8" if there are gaps.
std::string words_of(const CapabilitySet<unsigned>& set) {
  const std::vector<unsigned> numbers = members_of(set);
  if (numbers.back() - numbers.front() + 1 == numbers.size()) {
    return fmt::format("{} to {}", numbers.front(), numbers.back());
  }
  std::vector<std::string> names;
  for (const unsigned number : numbers) {
    names.push_back(std::to_string(number));
  }
  return enumerated(names, "and");
}

// The codecs for which `has` is true, as "levels or blocks". Exact operations have no codec.
template <typename Has>
std::string codecs_with(Has&& has) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kCodecs; ++i) {
    if (has(kTable[i])) {
      names.emplace_back(kTable[i].codec);
    }
  }
  return enumerated(names, "or");
}

// ------------------------------------------------------------------ checks

base::Status check_elements(const Capabilities& row, const Operation& operation) {
  if (!operation.tolerance ||
      (row.kinds.has(operation.kind) && row.types.has(operation.type) &&
       (!is_reduction(operation.kind) || row.reductions.has(operation.op)))) {
    return {};
  }
  return base::invalid_argument(fmt::format(
      "the codec {} is for {} of floating-point numbers with sum or average, not for {}; leave the "
      "tolerance away",
      row.codec, enumerated(names_of(row.kinds), "or"), describe(operation)));
}

base::Status check_algorithm(const Capabilities& row, const Operation& operation) {
  if (operation.tolerance && is_half(operation) && operation.algorithm == Algorithm::kRing) {
    return base::invalid_argument(fmt::format(
        "with a codec only an all_reduce goes round a ring, not {}; leave the algorithm away",
        describe(operation)));
  }
  if (row.algorithms.has(operation.algorithm)) {
    return {};
  }
  if (operation.algorithm == Algorithm::kSwitch) {
    return base::invalid_argument(fmt::format(
        "switches cannot add what {} sends: give an all_reduce a tolerance with the codec {}, or "
        "leave the algorithm away",
        operation.tolerance ? fmt::format("the codec {}", row.codec) : "an exact operation",
        codecs_with(
            [](const Capabilities& one) { return one.algorithms.has(Algorithm::kSwitch); })));
  }
  return base::invalid_argument(fmt::format(
      "the codec {} takes the algorithm {}, not {}; leave the algorithm away", row.codec,
      enumerated(names_of(row.algorithms), "or"), algorithm_name(operation.algorithm)));
}

base::Status check_precision(const Capabilities& row, const Tolerance& tolerance) {
  if (row.precisions.is_empty() || row.precisions.has(tolerance.precision)) {
    return {};
  }
  return base::invalid_argument(fmt::format("the codec {} has no precision of {} bits: take {}",
                                            row.codec, tolerance.precision,
                                            words_of(row.precisions)));
}

base::Status check_losses(const Capabilities& row, const Operation& operation) {
  const Tolerance& tolerance = *operation.tolerance;
  if (!row.losses && tolerance.loss_bound_ppm > 0) {
    return base::invalid_argument(fmt::format(
        "with the codec {} all packets arrive whole: set the loss bound to 0, or use {}", row.codec,
        codecs_with([](const Capabilities& one) { return one.losses; })));
  }
  if (!row.least_contributors && tolerance.least_contributors > 0.0) {
    return base::invalid_argument(fmt::format(
        "the codec {} waits for all ranks: leave least_contributors away, or use {}", row.codec,
        codecs_with([](const Capabilities& one) { return one.least_contributors; })));
  }
  if (tolerance.least_contributors > 0.0 && operation.kind != Kind::kAllReduce) {
    return base::invalid_argument(
        fmt::format("only an all_reduce goes on without late ranks, not {}: leave "
                    "least_contributors away",
                    describe(operation)));
  }
  return {};
}

base::Status check_group(const Capabilities& row, const Operation& operation, const Group& group) {
  if (group.world > row.ranks) {
    return base::invalid_argument(
        fmt::format("the codec {} is for groups of at most {} ranks, and this group has {}; use {}",
                    row.codec, row.ranks, group.world, codecs_with([&](const Capabilities& one) {
                      return one.ranks >= group.world && (one.servers || group.servers == 0);
                    })));
  }
  if (!row.servers && group.servers > 0) {
    return base::invalid_argument(
        fmt::format("the codec {} does not go through parameter servers; use {}", row.codec,
                    codecs_with([&](const Capabilities& one) {
                      return one.servers && one.ranks >= group.world;
                    })));
  }
  if (operation.tolerance && group.servers > 0 && operation.kind != Kind::kAllReduce) {
    return base::invalid_argument(
        fmt::format("in a group with parameter servers only an all_reduce has a codec, not {}: "
                    "leave the tolerance away",
                    describe(operation)));
  }
  return {};
}

base::Status check_packets(const Capabilities& row, const GroupPackets& packets) {
  if (!row.encryption && packets.are_encrypted) {
    return base::invalid_argument(fmt::format(
        "the codec {} is for switches that add, and they cannot add what is encrypted: use {}, or "
        "leave SPILLWAY_ENCRYPT away, with which packets still have tags",
        row.codec, codecs_with([](const Capabilities& one) { return one.encryption; })));
  }
  const unsigned needed = row.packet_bytes + packets.overhead;
  if (row.packet_bytes > 0 && packets.mtu > 0 && packets.mtu < needed) {
    return base::invalid_argument(fmt::format(
        "the codec {} has packets of {} bytes, and the ranks' MTU is {}: use {}, or a larger MTU",
        row.codec, needed, packets.mtu,
        codecs_with([](const Capabilities& one) { return one.packet_bytes == 0; })));
  }
  return {};
}

base::Status check_device(const Capabilities& row, const Operation& operation, const Group& group) {
  const bool waits = !operation.tolerance || operation.tolerance->least_contributors == 0.0;
  if (operation.device == nullptr ||
      (operation.kind == Kind::kAllReduce && row.device_types.has(operation.type) && waits &&
       group.world > 1)) {
    return {};
  }
  return base::invalid_argument(fmt::format(
      "a device's memory is taken by exact all_reduces, and by those with the codec {} without "
      "least_contributors, of float32, bfloat16 or float16, among two ranks or more; copy the "
      "tensor to the host for all else",
      codecs_with([](const Capabilities& one) { return !one.device_types.is_empty(); })));
}

// ------------------------------------------------------------------ the table as text

const char* yes_or_no(bool is_so) {
  return is_so ? "yes" : "no";
}

std::string words_of_types(const CapabilitySet<DataType>& set) {
  if (set.is_empty()) {
    return "no";
  }
  return set.bits == kAllTypes.bits ? "all"
         : set.bits == kFloats.bits ? "floats"
                                    : enumerated(names_of(set), "and");
}

std::string words_of_kinds(const CapabilitySet<Kind>& set) {
  return set.bits == kAllKinds.bits ? "all" : enumerated(names_of(set), "and");
}

std::string json_list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", name);
  }
  return "[" + text + "]";
}

}  // namespace

const std::array<Capabilities, kCapabilityRows>& capability_table() {
  return kTable;
}

const Capabilities& capabilities_of(std::optional<Codec> codec) {
  return codec ? kTable[static_cast<std::size_t>(*codec)] : kTable.back();
}

const Capabilities& capabilities_of(const Operation& operation) {
  return capabilities_of(operation.tolerance ? std::optional(operation.tolerance->codec)
                                             : std::nullopt);
}

base::Status check_capabilities(const Operation& operation, const Group& group,
                                const GroupPackets& packets) {
  const Capabilities& row = capabilities_of(operation);
  if (base::Status status = check_elements(row, operation); !status.ok()) {
    return status;
  }
  if (base::Status status = check_algorithm(row, operation); !status.ok()) {
    return status;
  }
  if (operation.tolerance) {
    if (base::Status status = check_precision(row, *operation.tolerance); !status.ok()) {
      return status;
    }
    if (base::Status status = check_losses(row, operation); !status.ok()) {
      return status;
    }
    if (row.values > 0 && operation.count > row.values) {
      return base::invalid_argument(
          fmt::format("the codec {} is for up to {} values, not {}; split the tensor", row.codec,
                      row.values, operation.count));
    }
  }
  if (base::Status status = check_group(row, operation, group); !status.ok()) {
    return status;
  }
  if (base::Status status = check_packets(row, packets); !status.ok()) {
    return status;
  }
  return check_device(row, operation, group);
}

std::string capabilities_markdown() {
  std::string text =
      "| codec | operations | algorithms | element types | reductions | bits | tensors on a GPU | "
      "ranks | parameter servers | encryption | loss bound | `least_contributors` | error feedback "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Capabilities& row : kTable) {
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
                        row.codec, words_of_kinds(row.kinds),
                        enumerated(names_of(row.algorithms), "or"), words_of_types(row.types),
                        row.reductions.bits == kAllReductions.bits
                            ? "all"
                            : enumerated(names_of(row.reductions), "and"),
                        row.precisions.is_empty() ? "-" : words_of(row.precisions),
                        words_of_types(row.device_types),
                        row.ranks == kAnyNumberOfRanks ? "any" : fmt::format("{}", row.ranks),
                        yes_or_no(row.servers), yes_or_no(row.encryption), yes_or_no(row.losses),
                        yes_or_no(row.least_contributors), yes_or_no(row.error_feedback));
  }
  return text;
}

std::string capabilities_json() {
  std::string text;
  for (const Capabilities& row : kTable) {
    text += fmt::format(
        "{}{{\"codec\": \"{}\", \"operations\": {}, \"algorithms\": {}, \"types\": {}, "
        "\"reductions\": {}, \"device_types\": {}, \"bits\": [{}], \"ranks\": {}, \"values\": {}, "
        "\"servers\": {}, \"encryption\": {}, \"losses\": {}, \"least_contributors\": {}, "
        "\"error_feedback\": {}, \"packet_bytes\": {}}}",
        text.empty() ? "" : ",\n ", row.codec, json_list(names_of(row.kinds)),
        json_list(names_of(row.algorithms)), json_list(names_of(row.types)),
        json_list(names_of(row.reductions)), json_list(names_of(row.device_types)),
        fmt::join(members_of(row.precisions), ", "), row.ranks, row.values, row.servers,
        row.encryption, row.losses, row.least_contributors, row.error_feedback, row.packet_bytes);
  }
  return "[" + text + "]\n";
}

}  // namespace spillway::collective
