// SPDX-License-Identifier: Apache-2.0
#include "collective/servers/call.h"

#include <algorithm>

namespace spillway::collective {
namespace {

constexpr std::uint8_t kVersion = 1;
constexpr std::uint8_t kTolerant = 1;
constexpr std::uint8_t kLossyGather = 2;
constexpr std::uint8_t kFeedback = 4;
constexpr std::uint8_t kPredictsScale = 8;
constexpr unsigned kCodeShift = 4;
constexpr std::uint8_t kCodeMask = 3 << kCodeShift;
constexpr unsigned kServedCodes = static_cast<unsigned>(SumCode::kBlocks) + 1;
constexpr std::uint8_t kKnownFlags =
    kTolerant | kLossyGather | kFeedback | kPredictsScale | kCodeMask;
constexpr std::size_t kToleranceAt = 16;

std::uint8_t flags_of(const Tolerance& tolerance) {
  unsigned flags = kTolerant | static_cast<unsigned>(tolerance.code) << kCodeShift;
  flags |= tolerance.lossy_gather ? kLossyGather : 0U;
  flags |= tolerance.feedback_tensor != 0 ? kFeedback : 0U;
  flags |= tolerance.predicts_scale ? kPredictsScale : 0U;
  return static_cast<std::uint8_t>(flags);
}

bool are_known(std::uint8_t flags) {
  return (flags & ~kKnownFlags) == 0 && (flags & kTolerant) != 0 &&
         (flags & kCodeMask) >> kCodeShift < static_cast<int>(kServedCodes);
}

void write_tolerance(const Tolerance& tolerance, base::ByteWriter& writer) {
  writer.write(tolerance.precision);
  writer.write(tolerance.gather_precision);
  writer.write(tolerance.min_planes);
  writer.write(flags_of(tolerance));
  writer.write(tolerance.loss_bound_ppm);
  writer.write(tolerance.least_contributors);
}

base::Result<Tolerance> read_tolerance(base::ByteReader& reader) {
  Tolerance tolerance;
  tolerance.precision = reader.read<std::uint8_t>();
  tolerance.gather_precision = reader.read<std::uint8_t>();
  tolerance.min_planes = reader.read<std::uint8_t>();
  const auto flags = reader.read<std::uint8_t>();
  if (!are_known(flags)) {
    return base::invalid_argument(
        "a call has flags that this version does not know; do all ranks run one version?");
  }
  tolerance.code = static_cast<SumCode>((flags & kCodeMask) >> kCodeShift);
  tolerance.predicts_scale = (flags & kPredictsScale) != 0;
  tolerance.lossy_gather = (flags & kLossyGather) != 0;
  tolerance.feedback_tensor = (flags & kFeedback) != 0 ? 1 : 0;  // the name is the worker's own
  tolerance.loss_bound_ppm = reader.read<std::uint32_t>();
  tolerance.least_contributors = reader.read<double>();
  return tolerance;
}

// Reads a number of an enumeration with so many values.
template <typename Enum>
bool read_enum(base::ByteReader& reader, unsigned values, Enum& out) {
  const auto number = reader.read<std::uint8_t>();
  out = static_cast<Enum>(number);
  return number < values;
}

}  // namespace

CallBytes encode_call(const Operation& operation) {
  CallBytes bytes{};
  base::ByteWriter writer(bytes);
  writer.write(kVersion);
  writer.write(static_cast<std::uint8_t>(operation.kind));
  writer.write(static_cast<std::uint8_t>(operation.type));
  writer.write(static_cast<std::uint8_t>(operation.op));
  writer.write(static_cast<std::uint8_t>(operation.algorithm));
  writer.write(operation.priority);
  writer.write(operation.root);
  writer.write(std::uint64_t{operation.count});
  if (operation.tolerance) {
    write_tolerance(*operation.tolerance, writer);
  }
  return bytes;
}

base::Result<Operation> parse_call(base::ByteView bytes) {
  if (bytes.size() != kCallBytes) {
    return base::invalid_argument("a call has 32 bytes; do all ranks run one version?");
  }
  base::ByteReader reader(bytes);
  const bool is_known = reader.read<std::uint8_t>() == kVersion;
  Operation operation;
  const bool in_range = read_enum(reader, kKinds, operation.kind) &&
                        read_enum(reader, kDataTypes, operation.type) &&
                        read_enum(reader, kReduceOps, operation.op) &&
                        read_enum(reader, kAlgorithms, operation.algorithm);
  if (!is_known || !in_range) {
    return base::invalid_argument("a call of another version; do all ranks run one version?");
  }
  operation.priority = reader.read<std::uint8_t>();
  operation.root = reader.read<std::uint16_t>();
  operation.count = reader.read<std::uint64_t>();
  const base::ByteView rest = bytes.subspan(kToleranceAt);
  if (std::all_of(rest.begin(), rest.end(), [](std::uint8_t byte) { return byte == 0; })) {
    return operation;
  }
  const base::Result<Tolerance> tolerance = read_tolerance(reader);
  if (!tolerance.ok()) {
    return tolerance.status();
  }
  operation.tolerance = *tolerance;
  return operation;
}

bool are_alike(const Operation& a, const Operation& b) {
  Operation other = b;
  other.priority = a.priority;
  return encode_call(a) == encode_call(other);
}

}  // namespace spillway::collective
