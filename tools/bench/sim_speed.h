// SPDX-License-Identifier: Apache-2.0
//
// How many data packets per second the simulator delivers on one core, for networks of various
// sizes. Hosts run the production transport.
//
// Throws CommandError. One thread.
#pragma once

#include <cstdint>

#include "tools/bench/progress.h"

namespace spillway::bench {

struct SimSpeed {
  unsigned hosts = 0;
  std::uint64_t packets = 0;  // delivered data packets
  std::uint64_t events = 0;
  double seconds = 0.0;
  double slowdown = 0.0;  // of the flows, relative to an ideal network

  double packets_per_second() const { return static_cast<double>(packets) / seconds; }
  double nanoseconds_per_packet() const { return seconds * 1e9 / static_cast<double>(packets); }
};

// A permutation of flows through a leaf-spine network without oversubscription; the best of
// `repetitions` counts.
struct SimSpeedOptions {
  unsigned hosts = 128;
  unsigned megabytes = 10;  // per flow
  int repetitions = 3;
};
SimSpeed measure_sim_speed(const SimSpeedOptions& options, Progress& progress);

}  // namespace spillway::bench
