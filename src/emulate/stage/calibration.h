// SPDX-License-Identifier: Apache-2.0
//
// Measures what collectives of a communicator's ranks take, for measured_durations.h. All ranks
// call it with the same options. What memory they take: calibrated_memory.h.
//
// Groups smaller than the world are measured in all groups of their division of it at once, each
// over a communicator of its own.
//
// Each kind and size is done `repeats` times. Before each, ranks rest for `rest`, as training does
// between its collectives, and meet at a barrier. What it took is the time from a rank's end of the
// barrier to its end of the collective, at the rank where that is longest: those who end early
// wait for it at the next one. The table has the mean of the repeats, but for those of more than
// twice the median. Then kInARow are called at once: what each of them takes more than one alone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/stage/measured_durations.h"
#include "runtime/communicator.h"

namespace spillway::emulate {

struct CalibrationOptions {
  std::vector<CollectiveShape> shapes;  // of groups that divide the world
  std::uint32_t repeats = 9;
  base::Duration rest = base::milliseconds(5);
  base::Duration patience = base::seconds(60);
  // Told of each row as it is there; may be empty.
  std::function<void(const MeasuredRow&)> on_row;
};

inline constexpr std::uint32_t kInARow = 4;

base::Result<MeasuredTable> calibrate(runtime::Communicator& everybody,
                                      const CalibrationOptions& options);

}  // namespace spillway::emulate
