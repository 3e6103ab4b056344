// SPDX-License-Identifier: Apache-2.0
//
// Measures what the library holds more of memory at a real rank of a staged world where all ranks
// are real than where only those are: so much a staged rank holds itself (measured_durations.h).
//
// What a process has resident at most, beyond what it had before and beyond what the collectives
// read and write: once with communicators of the ranks that will be real, and once of all. The
// difference counts at the rank where it is largest. All ranks call it with the same options.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/stage/measured_durations.h"
#include "runtime/communicator.h"

namespace spillway::emulate {

struct MemoryOptions {
  std::vector<CollectiveShape> at_once{};  // what is under way, in groups that divide the world
  std::vector<std::uint32_t> real{};       // ascending
  base::Duration patience = base::seconds(60);
};

base::Result<MeasuredMemory> measure_memory(runtime::Communicator& everybody,
                                            const MemoryOptions& options);

}  // namespace spillway::emulate
