// SPDX-License-Identifier: Apache-2.0
//
// Small networks for soak worlds in which all jobs end: one switch, or leaves and spines, and link
// faults that end or let some packets through. Lines of a scenario; pure functions of the draw.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/units.h"
#include "sim/soak/draw.h"

namespace spillway::sim {

std::string as_text(base::Duration duration);

std::string draw_small_topology(SoakDraw& draw, std::uint32_t hosts, bool is_one_switch);
std::string draw_small_switch(SoakDraw& draw);

// Keeps the lines of SoakFaults that no job dies of: no host faults, and no link that loses
// everything for good.
std::string passing_faults(std::string_view lines);

}  // namespace spillway::sim
