// SPDX-License-Identifier: Apache-2.0
//
// Shared by the tables of rans_kernels.h; private to them.
#pragma once

#include <vector>

#include "codec/entropy/rans_kernels.h"

namespace spillway::codec::entropy {

// The vector tables that this CPU can run, fastest first. Exists only in x86 builds with Highway.
std::vector<const RansKernels*> highway_rans_kernels();

}  // namespace spillway::codec::entropy
