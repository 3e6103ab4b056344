// SPDX-License-Identifier: Apache-2.0
//
// The machine that adds (src/dataplane/sum_slots.h) in user space, on one frame and its slot:
// found, decided about, added, written. No queue, no network, nothing that reads or sends frames.
// For benchmarks; no state, any thread.
#pragma once

#include <cstdint>

#include "dataplane/sum_slots.h"
#include "kernel/measure/probe_frames.h"

namespace spillway::kernel {

// How words are added: by the vectors that the compiler makes of the loop, or one by one.
enum class SumWordsBy : std::uint8_t { kVectors, kWords };

// Nanoseconds of a frame that finds the slot in this state, of `runs`, each on copies of both.
double user_sum_ns(const Frame& frame, const spillway_sum_slot& slot, SumWordsBy words,
                   std::uint32_t runs);

}  // namespace spillway::kernel
