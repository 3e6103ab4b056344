// SPDX-License-Identifier: Apache-2.0
//
// Measures how much more memory the library holds at a real rank if all ranks of the world are real
// than if only a few are. A staged rank holds that much itself (measured_durations.h).
//
// It measures a process's peak resident memory, without what it had before and without the buffers
// of the collectives. It does so once with communicators among the real ranks, and once among all.
// The result is the difference at the rank where it is largest. All ranks call it with the same
// options.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "comm/communicator.h"
#include "emulate/stage/measured_durations.h"

namespace spillway::emulate {

struct MemoryOptions {
  std::vector<CollectiveShape> at_once{};  // operations under way, in groups that divide the world
  std::vector<std::uint32_t> real{};       // ascending
  base::Duration patience = base::seconds(60);
};

base::Result<MeasuredMemory> measure_memory(runtime::Communicator& everybody,
                                            const MemoryOptions& options);

}  // namespace spillway::emulate
