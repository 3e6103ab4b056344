// SPDX-License-Identifier: Apache-2.0
//
// How a rendezvous tells people what happened. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/units.h"

namespace spillway::runtime {

// "rank 3 of 8", "ranks 3 and 7 of 8", "ranks 1-5 and 7 of 8"; of long lists the first runs and how
// many others. `ranks` ascend and are not empty.
std::string name_ranks(std::span<const std::uint32_t> ranks, std::uint32_t world);

// "30 s", "250 ms"
std::string name_duration(base::Duration duration);

}  // namespace spillway::runtime
