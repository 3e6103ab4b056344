// SPDX-License-Identifier: Apache-2.0
//
// Options for following the packets of a lab, and the results in numbers: plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/units.h"
#include "switch/dataplane/port.h"

namespace spillway::lab {

struct TraceOptions {
  std::string path;               // of the Chrome trace; empty: packets are not followed
  std::size_t packets = 200'000;  // kept at most
};

// The first ones equal a switch's decisions (enum spillway_reason).
enum class PacketOutcome : std::uint8_t {
  kWhole = SPILLWAY_REASON_ADMITTED,
  kMarked = SPILLWAY_REASON_MARKED,
  kTrimmed = SPILLWAY_REASON_TRIMMED,
  kDiverted = SPILLWAY_REASON_DIVERTED,
  kQueueFull = SPILLWAY_REASON_QUEUE_FULL,
  kEarly = SPILLWAY_REASON_EARLY,
  kRed = SPILLWAY_REASON_RED,
  kControlFull = SPILLWAY_REASON_CONTROL_FULL,
  kLost,    // neither arrived nor dropped by a decision
  kUnseen,  // arrived, but its departure was not seen: whole or trimmed
};
inline constexpr std::size_t kPacketOutcomes = 10;
std::string_view outcome_name(PacketOutcome outcome);

struct TraceSummary {
  std::array<std::uint64_t, kPacketOutcomes> packets = {};  // by PacketOutcome
  std::uint64_t left_out = 0;                               // packets beyond the limit
  std::uint64_t missed = 0;  // sights and events that the kernel had no room for
  // From the switch's decision to the arrival; without a switch that reports, from the departure.
  base::Duration median;
  base::Duration p99;

  std::uint64_t of(PacketOutcome outcome) const {
    return packets[static_cast<std::size_t>(outcome)];
  }
};

}  // namespace spillway::lab
