// SPDX-License-Identifier: Apache-2.0
#include "emulate/simulate/collective_cut.h"

#include <bit>

namespace spillway::emulate {
namespace {

// The same as in collective/exact/planner.cc.
constexpr std::uint32_t kTreeMembers = 32;
constexpr std::uint32_t kRingMembers = 64;
constexpr double kSmallShard = 4 * 1024;
constexpr double kSmallMessage = 64 * 1024;

std::uint32_t tree_steps(std::uint32_t members) {
  return static_cast<std::uint32_t>(std::bit_width(members - 1));
}

Cut cut_all_reduce(double bytes, std::uint32_t members, CutAlgorithm algorithm) {
  const double n = members;
  if (algorithm == CutAlgorithm::kSwitch) {
    return {CutShape::kSwitch, bytes, 2};
  }
  const bool is_small = members > kTreeMembers && bytes / n < kSmallShard;
  if (algorithm == CutAlgorithm::kAutomatic && is_small) {
    return {CutShape::kPairs, 2.0 * bytes / n, 2 * tree_steps(members)};
  }
  const bool rings = algorithm == CutAlgorithm::kRing ||
                     (algorithm == CutAlgorithm::kAutomatic && members > kRingMembers);
  return rings ? Cut{CutShape::kRing, 2.0 * (n - 1) / n * bytes, 2 * (members - 1)}
               : Cut{CutShape::kPairs, 2.0 * bytes / n, 2};
}

// For reduce-scatter and all-gather: `shard` is the part that one rank ends or begins with.
Cut cut_half(double shard, double all, std::uint32_t members, CutAlgorithm algorithm) {
  const bool rings =
      algorithm == CutAlgorithm::kRing ||
      (algorithm == CutAlgorithm::kAutomatic && members > kRingMembers && all >= kSmallMessage);
  return rings ? Cut{CutShape::kRing, shard * (members - 1), members - 1}
               : Cut{CutShape::kPairs, shard, 1};
}

}  // namespace

Cut cut_of(const Transfer& transfer, std::uint32_t members, CutAlgorithm algorithm,
           double all_reduce_factor) {
  const auto bytes = static_cast<double>(transfer.bytes);
  const double n = members;
  switch (transfer.collective) {
    case CollectiveKind::kAllReduce:
      return cut_all_reduce(all_reduce_factor * bytes, members, algorithm);
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kReduceScatterBlock:
      return cut_half(bytes / n, bytes, members, algorithm);
    case CollectiveKind::kAllGather:
      return cut_half(bytes, bytes, members, algorithm);
    case CollectiveKind::kBroadcast:
      return bytes < kSmallMessage ? Cut{CutShape::kFromRoot, bytes, tree_steps(members)}
                                   : Cut{CutShape::kRing, bytes, members - 1};
    case CollectiveKind::kReduce:
      return {CutShape::kPairs, 2.0 * bytes / n, 2};
    case CollectiveKind::kGather:
      return {CutShape::kToRoot, bytes, 1};
    case CollectiveKind::kScatter:
      return {CutShape::kFromRoot, bytes / n, 1};
    case CollectiveKind::kAllToAll:
      return {CutShape::kPairs, bytes / n, 1};
    case CollectiveKind::kBarrier:
      break;
  }
  return {CutShape::kPairs, 1.0, 2 * tree_steps(members)};
}

}  // namespace spillway::emulate
