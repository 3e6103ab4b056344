// SPDX-License-Identifier: Apache-2.0
//
// The adding state machine (switch/dataplane/sum_slots.h) in user space, on one frame and its slot:
// find, decide, add, write. No queue, no network, no frame I/O. For benchmarks; no state, any
// thread.
#pragma once

#include <cstdint>

#include "switch/dataplane/sum_slots.h"
#include "switch/kernel/measure/probe_frames.h"

namespace spillway::kernel {

// How words are added: vectorized by the compiler, or one by one.
enum class SumWordsBy : std::uint8_t { kVectors, kWords };

// Average nanoseconds for a frame that finds the slot in this state, over `runs` runs, each on
// copies of both.
double user_sum_ns(const Frame& frame, const spillway_sum_slot& slot, SumWordsBy words,
                   std::uint32_t runs);

}  // namespace spillway::kernel
