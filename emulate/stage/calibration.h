// SPDX-License-Identifier: Apache-2.0
//
// Measures how long collectives of a communicator's ranks take, for measured_durations.h. All ranks
// call it with the same options. calibrated_memory.h measures their memory.
//
// For groups smaller than the world, all groups of the division run at once, each over its own
// communicator.
//
// Each kind and size runs `repeats` times. Before each, ranks rest for `rest`, as training does
// between its collectives, and meet at a barrier. The duration is the time from a rank's end of the
// barrier to its end of the collective, at the rank where it is longest: ranks that end early wait
// for that one at the next collective. The table has the mean of the repeats without those above
// twice the median. Then kInARow calls start at once, to measure how much more each takes than one
// alone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "comm/communicator.h"
#include "emulate/stage/measured_durations.h"

namespace spillway::emulate {

struct CalibrationOptions {
  std::vector<CollectiveShape> shapes;  // of groups that divide the world
  std::uint32_t repeats = 9;
  base::Duration rest = base::milliseconds(5);
  base::Duration patience = base::seconds(60);
  // Called for each row once it is measured; may be empty.
  std::function<void(const MeasuredRow&)> on_row;
};

inline constexpr std::uint32_t kInARow = 4;

base::Result<MeasuredTable> calibrate(runtime::Communicator& everybody,
                                      const CalibrationOptions& options);

}  // namespace spillway::emulate
