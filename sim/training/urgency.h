// SPDX-License-Identifier: Apache-2.0
//
// The urgency of a layer's packets for slots in switches, as ESA (arXiv 2201.06398) weighs it:
//
//   (1 / T) * (L / l) * (communication / computation)
//
// T is the job's remaining time in seconds, l the layer, from 1 at the front, L the number of
// layers. This favours jobs that are nearly done, front layers, and jobs that wait for the network.
// Packets carry the logarithm in 8 bits (wire/sum_packet.h). Its steps per doubling are chosen to
// tell apart weights from 2^-15 to 2^21. 0 is reserved for others. Pure functions.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace spillway::sim {

// The two times of a job's step, each without the other.
struct StepCosts {
  base::Duration computation;
  base::Duration communication;
};

// The weight as 8 bits, clamped at both ends.
std::uint8_t quantised_urgency(double weight);

std::uint8_t esa_urgency(const StepCosts& costs, std::uint32_t steps_left, std::uint32_t layer,
                         std::uint32_t layers);

// Front layers are sent first: 7 for the first layer, 0 for the last of many.
std::uint8_t layer_priority(std::uint32_t layer, std::uint32_t layers);

}  // namespace spillway::sim
