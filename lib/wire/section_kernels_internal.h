// SPDX-License-Identifier: Apache-2.0
//
// Interface between section_kernels.cc and the tables that it chooses from.
#pragma once

#include <vector>

#include "wire/section_kernels.h"

namespace spillway::wire {

// The oracle (section_kernels_scalar.cc).
const SectionKernels& scalar_section_kernels();

// The tables that this CPU runs, fastest last. Empty if it has no instructions for AES and
// carry-less products (section_kernels_highway.cc).
std::vector<const SectionKernels*> highway_section_kernels();

}  // namespace spillway::wire
