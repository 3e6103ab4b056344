// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/fault.h"

#include <fmt/format.h>

#include <cmath>

namespace spillway::scenario {
namespace {

constexpr double kMaxSkewPpm = 100'000;  // 10%: far beyond any crystal

base::Status validate_skew(const Fault& fault) {
  if (!(std::abs(fault.skew_ppm) <= kMaxSkewPpm)) {
    return base::invalid_argument(
        fmt::format("a clock skew of {} ppm is beyond {} ppm", fault.skew_ppm, kMaxSkewPpm));
  }
  if (fault.from != base::Instant()) {
    return base::invalid_argument("a clock skew holds from the beginning; leave `from` at 0");
  }
  return {};
}

// Checks that the fault names its host, switch or link.
base::Status validate_place(const Fault& fault) {
  if (is_host_fault(fault.kind)) {
    return fault.host == kNoHost ? base::invalid_argument("this fault needs a host")
                                 : base::Status();
  }
  if (is_switch_fault(fault.kind)) {
    return fault.switch_name.empty() ? base::invalid_argument("this fault needs a switch")
                                     : base::Status();
  }
  return fault.link.empty() ? base::invalid_argument("this fault needs a link") : base::Status();
}

}  // namespace

bool is_host_fault(FaultKind kind) {
  return kind == FaultKind::kHostDeath || kind == FaultKind::kClockSkew;
}

bool is_switch_fault(FaultKind kind) {
  return kind == FaultKind::kRestart;
}

base::Status validate(const Fault& fault) {
  if (base::Status status = validate_place(fault); !status.ok()) {
    return status;
  }
  if (!(fault.share >= 0.0 && fault.share <= 1.0)) {
    return base::invalid_argument(fmt::format("a share of {} is not from 0 to 1", fault.share));
  }
  if (fault.kind == FaultKind::kBursty && !(fault.burst_packets >= 1.0)) {
    return base::invalid_argument(
        fmt::format("bursts of {} packets: at least 1", fault.burst_packets));
  }
  if (fault.delay < base::Duration()) {
    return base::invalid_argument("a delay must not be negative");
  }
  if (fault.from > fault.until) {
    return base::invalid_argument("a fault must not end before it begins");
  }
  return fault.kind == FaultKind::kClockSkew ? validate_skew(fault) : base::Status();
}

}  // namespace spillway::scenario
