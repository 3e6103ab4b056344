// SPDX-License-Identifier: Apache-2.0
#include "comm/sum_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "wire/sum_packet.h"

namespace spillway::runtime {
namespace {

using collective::Algorithm;
using collective::Operation;
using collective::SumCode;
using collective::Tolerance;

// Precisions that levels support. A request for more bits uses blocks, never fewer bits.
constexpr std::array<std::uint8_t, 4> kLevelBits = {2, 3, 4, 8};

bool can_be_added(const Operation& operation, const collective::Group& group) {
  return operation.tolerance && !collective::is_coded(operation.tolerance->code) &&
         !operation.tolerance->lossy_gather && group.world <= SPILLWAY_SUM_RANKS;
}

Tolerance coded_for_switches(Tolerance tolerance) {
  if (tolerance.code != SumCode::kPlanes) {
    return tolerance;
  }
  const auto* bits = std::lower_bound(kLevelBits.begin(), kLevelBits.end(), tolerance.precision);
  tolerance.code = bits == kLevelBits.end() ? SumCode::kBlocks : SumCode::kLevels;
  tolerance.precision = bits == kLevelBits.end() ? tolerance.precision : *bits;
  return tolerance;
}

}  // namespace

Operation with_algorithm(const Operation& asked, Algorithm algorithm,
                         const collective::Group& group) {
  Operation operation = asked;
  if (asked.algorithm != Algorithm::kAutomatic || collective::is_point_to_point(asked.kind)) {
    return operation;
  }
  const bool is_coded = asked.tolerance && collective::is_coded(asked.tolerance->code);
  if (is_coded) {
    operation.algorithm = algorithm == Algorithm::kRing ? algorithm : asked.algorithm;
  } else if (algorithm != Algorithm::kSwitch) {
    operation.algorithm = asked.tolerance ? asked.algorithm : algorithm;
  } else if (can_be_added(asked, group)) {
    operation.algorithm = Algorithm::kSwitch;
    operation.tolerance = coded_for_switches(*asked.tolerance);
  }
  return operation;
}

base::Status check_sums(const Operation& operation, bool encrypts,
                        const packetize::PacketLimits& limits) {
  const SumCode used = operation.tolerance ? operation.tolerance->code : SumCode::kPlanes;
  if (used == SumCode::kPlanes || collective::is_coded(used)) {
    return {};
  }
  const char* code = collective::sum_code_name(used);
  if (encrypts) {
    return base::invalid_argument(fmt::format(
        "the code {} is for switches that add, and they cannot add what is encrypted: use planes, "
        "or leave SPILLWAY_ENCRYPT away, with which packets still have tags",
        code));
  }
  const unsigned needed = unsigned{SPILLWAY_SUM_PACKET} + limits.datagram_overhead();
  if (limits.mtu < needed) {
    return base::invalid_argument(
        fmt::format("the code {} has packets of {} bytes, and the ranks' MTU is {}: use planes, or "
                    "a larger MTU",
                    code, needed, limits.mtu));
  }
  return {};
}

}  // namespace spillway::runtime
