// SPDX-License-Identifier: Apache-2.0
//
// The cost of packet checks on one core, and the layout of the packets that are checked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "tools/bench/progress.h"

namespace spillway::bench {

// ------------------------------------------------------------------ the layout of a packet

// Layout of the separately checked parts of a packet: the head, then tail segments. The sizes are
// those of Spillway's packets, with room for header and checks. A plain value.

struct CheckedPart {
  std::size_t at;
  std::size_t bytes;
  std::size_t check_at;
};

struct CheckLayout {
  static constexpr std::size_t kHeader = 48;
  static constexpr std::size_t kCheck = 8;
  static constexpr std::size_t kHead = 104;  // left for planes when trimmed to 206 bytes
  static constexpr std::size_t kSegment = 512;
  static constexpr std::size_t kLeastPacket = kHeader + kCheck + kHead;

  std::size_t bytes;
  std::vector<CheckedPart> parts;  // the head first; the header precedes it

  // `bytes` must be at least kLeastPacket.
  static CheckLayout of(std::size_t bytes) {
    CheckLayout layout{bytes, {{kHeader + kCheck, kHead, kHeader}}};
    for (std::size_t at = kLeastPacket; at + kCheck < bytes; at += kSegment + kCheck) {
      const std::size_t segment = std::min(kSegment, bytes - kCheck - at);
      layout.parts.push_back({at, segment, at + segment});
    }
    return layout;
  }
};

// ------------------------------------------------------------------ the measurement

// The cost of packet checks on one core: packets are copied and checked on the way, as packet_auth
// does it, with every check that we have or might have. All methods take turns in one run, so that
// disturbances of the machine slow all of them.

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
