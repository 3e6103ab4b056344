// SPDX-License-Identifier: Apache-2.0
//
// A lab's fabric at one moment, in the few numbers that are worth following over time: all of its
// switch ports together. Counts are since its beginning; whatever crosses it counts, background
// traffic included. Plain values.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "fabric/emulator.h"

namespace spillway::lab {

struct FabricSample {
  base::Duration at;                // since the commands were started
  std::uint64_t sent_bytes = 0;     // put on links by switches
  std::uint64_t queued_bytes = 0;   // waiting now
  std::uint64_t deepest_bytes = 0;  // of these, at the port where most wait
  std::uint64_t trimmed = 0;        // packets
  std::uint64_t lost = 0;           // packets dropped by switches, or by faults anywhere
};

FabricSample sample_of(const fabric::FabricSnapshot& fabric, base::Duration at);

}  // namespace spillway::lab
