// SPDX-License-Identifier: Apache-2.0
//
// Whether a lab's fabric kept up with the clock, so that measurements show the network and not this
// machine. The fabric in user space knows how late each frame left. It fell behind if it lost
// frames itself, or if the mean lateness is above a limit. The limit is kMaxMeanLate or, if longer,
// a tenth of the delay between the two hosts nearest to each other. The switch in the kernel does
// not know its lateness. With either fabric, a virtual machine whose host took more than kMaxStolen
// of its CPU time measured that host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/units.h"
#include "sim/scenario/topology.h"
#include "switch/fabric/emulator.h"

namespace spillway::lab {

inline constexpr base::Duration kMaxMeanLate = base::microseconds(50);
inline constexpr double kMaxStolen = 0.03;

struct Pace {
  double mean_late_us = 0.0;
  double p99_late_us = 0.0;
  double limit_us = 0.0;     // for the mean
  std::uint64_t missed = 0;  // frames that the emulation itself lost
  double stolen = 0.0;       // share of CPU time that the host took
  std::string remedy{};      // the starter's advice: what it did, or the option to give

  bool fabric_kept_up() const { return mean_late_us <= limit_us && missed == 0; }
  bool kept_up() const { return fabric_kept_up() && stolen <= kMaxStolen; }
};

// Ticks of all CPUs since boot.
struct ProcessorTimes {
  std::uint64_t all = 0;
  std::uint64_t stolen = 0;
};
ProcessorTimes parse_processor_times(std::string_view proc_stat);
ProcessorTimes read_processor_times();  // zeros if the kernel does not say
double stolen_share(const ProcessorTimes& before, const ProcessorTimes& after);

Pace pace_of(const scenario::Topology& topology, const fabric::FabricSnapshot& fabric,
             double stolen);

// What fell behind, by how much, and the remedy; empty if the run kept up.
std::string pace_sentence(const Pace& pace);

}  // namespace spillway::lab
