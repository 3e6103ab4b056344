// SPDX-License-Identifier: Apache-2.0
//
// What checks of packets cost on one core: packets are copied from one place to another and checked
// on the way, as packet_auth does it, with every check we have or might have. All of them take
// turns in one run, so that what slows the machine down slows all of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/progress.h"

namespace spillway::bench {

struct CheckSpeedOptions {
  std::vector<std::size_t> packet_bytes = {1452, 8952};
  int rounds = 1000;  // the best one counts: noise only ever slows a run down
};

struct CheckSpeed {
  std::string check;
  std::size_t packet_bytes;
  double nanoseconds_per_packet;
  double of_crc32c;  // times as long

  double gigabytes_per_second() const {
    return static_cast<double>(packet_bytes) / nanoseconds_per_packet;
  }
};

// The steps that `progress` will count.
std::size_t check_speed_steps(const CheckSpeedOptions& options);
std::vector<CheckSpeed> measure_check_speed(const CheckSpeedOptions& options, Progress& progress);

}  // namespace spillway::bench
