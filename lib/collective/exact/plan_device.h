// SPDX-License-Identifier: Apache-2.0
//
// The plan for a tensor in a device's memory: the same steps, on memory of the host, plus steps
// that copy. Input is brought to the host before the first step that reads it, in the order in
// which the plan reads; output is taken back after the last steps that write it. So the first
// messages leave while the rest of the tensor is still copied, and what has come is copied while
// the rest is under way. One copy covers several pieces, because it costs the host about as much as
// a message of one.
//
// Where input and output are one memory, what is taken back has been brought before: nothing is
// written to a place before all ranks' parts of it were read.
//
// Pure; any thread.
#pragma once

#include <cstddef>

#include "collective/exact/plan.h"

namespace spillway::collective {

// `bytes`: of the input; `copy_bytes`: most bytes of one copy.
Plan on_device(const Plan& plan, std::size_t bytes, std::size_t copy_bytes);

// Copy size for a tensor of so many bytes: many copies that overlap with the rest, each worth its
// costs.
std::size_t copy_bytes_of(std::size_t bytes);

}  // namespace spillway::collective
