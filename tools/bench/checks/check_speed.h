// SPDX-License-Identifier: Apache-2.0
//
// The cost of packet checks on one core: packets are copied and checked on the way, as packet_auth
// does it, with every check that we have or might have. All methods take turns in one run, so that
// disturbances of the machine slow all of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/bench/progress.h"

namespace spillway::bench {

struct CheckSpeedOptions {
  std::vector<std::size_t> packet_bytes = {1452, 8952};
  int rounds = 1000;  // the best one counts, because noise only slows a run down
};

struct CheckSpeed {
  std::string check;
  std::size_t packet_bytes;
  double nanoseconds_per_packet;
  double of_crc32c;  // time relative to CRC32C

  double gigabytes_per_second() const {
    return static_cast<double>(packet_bytes) / nanoseconds_per_packet;
  }
};

// Number of steps that `progress` will count.
std::size_t check_speed_steps(const CheckSpeedOptions& options);
std::vector<CheckSpeed> measure_check_speed(const CheckSpeedOptions& options, Progress& progress);

}  // namespace spillway::bench
