// SPDX-License-Identifier: Apache-2.0
//
// How much a layer of a training job wants slots in switches, as ESA (arXiv 2201.06398) weighs it:
//
//   (1 / T) * (L / l) * (communication / computation)
//
// T is the job's remaining time in seconds, l the layer, from 1 at the front, L how many there are:
// jobs that are nearly done first, front layers first, jobs that wait for the network first. Its
// logarithm goes into the 8 bits that packets have (wire/sum_packet.h): so many steps per doubling
// that weights from 2^-15 to 2^21 can be told apart. 0 is left to others. Pure functions.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace spillway::sim {

// What one step of a job takes, each by itself.
struct StepCosts {
  base::Duration computation;
  base::Duration communication;
};

// Its share of 8 bits; what is beyond either end is at the end.
std::uint8_t quantised_urgency(double weight);

std::uint8_t esa_urgency(const StepCosts& costs, std::uint32_t steps_left, std::uint32_t layer,
                         std::uint32_t layers);

// Front layers are sent first: 7 for the first, 0 for the last of many.
std::uint8_t layer_priority(std::uint32_t layer, std::uint32_t layers);

}  // namespace spillway::sim
