// SPDX-License-Identifier: Apache-2.0
//
// What the tables of rans_kernels.h share with each other and with nobody else.
#pragma once

#include <vector>

#include "codec/entropy/rans_kernels.h"

namespace spillway::codec::entropy {

// The vector tables this CPU runs, fastest first. Present only in builds with Highway for x86.
std::vector<const RansKernels*> highway_rans_kernels();

}  // namespace spillway::codec::entropy
