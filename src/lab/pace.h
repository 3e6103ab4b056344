// SPDX-License-Identifier: Apache-2.0
//
// Whether a lab's fabric kept up with the clock, so that what was measured in it was the network
// and not this machine. The fabric in user space knows how late each frame left; it fell behind
// where frames were late on average by more than kMaxMeanLate, or by a tenth of the delay between
// the two hosts that are nearest to each other where that is longer, or where frames were lost
// because nobody was in time to take them. The switch in the kernel is part of what it carries for
// and does not know. Whatever the fabric, a virtual machine whose host took away more than
// kMaxStolen of its processors' time measured that host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/units.h"
#include "fabric/emulator.h"
#include "scenario/topology.h"

namespace spillway::lab {

inline constexpr base::Duration kMaxMeanLate = base::microseconds(50);
inline constexpr double kMaxStolen = 0.03;

struct Pace {
  double mean_late_us = 0.0;
  double p99_late_us = 0.0;
  double limit_us = 0.0;     // of the mean
  std::uint64_t missed = 0;  // frames that the emulation itself lost
  double stolen = 0.0;       // share of the processors' time

  bool fabric_kept_up() const { return mean_late_us <= limit_us && missed == 0; }
  bool kept_up() const { return fabric_kept_up() && stolen <= kMaxStolen; }
};

// Of all processors since they started, in ticks.
struct ProcessorTimes {
  std::uint64_t all = 0;
  std::uint64_t stolen = 0;
};
ProcessorTimes parse_processor_times(std::string_view proc_stat);
ProcessorTimes read_processor_times();  // zeros where the kernel does not say
double stolen_share(const ProcessorTimes& before, const ProcessorTimes& after);

Pace pace_of(const scenario::Topology& topology, const fabric::FabricSnapshot& fabric,
             double stolen);

// That what was compared does not hold, how late it was and what to do; empty where it kept up.
std::string pace_sentence(const Pace& pace);

}  // namespace spillway::lab
