// SPDX-License-Identifier: Apache-2.0
#include "sim/training/urgency.h"

#include <algorithm>
#include <cmath>

namespace spillway::sim {
namespace {

constexpr double kStepsPerDoubling = 7.0;
constexpr double kLeastExponent = -15.0;
constexpr unsigned kPriorities = 8;

double in_seconds(base::Duration duration) {
  return static_cast<double>(std::max<std::int64_t>(duration.count(), 1)) * 1e-9;
}

}  // namespace

std::uint8_t quantised_urgency(double weight) {
  const double steps = kStepsPerDoubling * (std::log2(weight) - kLeastExponent);
  return static_cast<std::uint8_t>(std::lround(std::clamp(steps, 1.0, 255.0)));
}

std::uint8_t esa_urgency(const StepCosts& costs, std::uint32_t steps_left, std::uint32_t layer,
                         std::uint32_t layers) {
  const double communication = in_seconds(costs.communication);
  const double computation = in_seconds(costs.computation);
  const double left = steps_left * (communication + computation);
  const double front = static_cast<double>(layers) / (layer + 1);
  return quantised_urgency(front * communication / computation / left);
}

std::uint8_t layer_priority(std::uint32_t layer, std::uint32_t layers) {
  return static_cast<std::uint8_t>(kPriorities - 1 - layer * kPriorities / layers);
}

}  // namespace spillway::sim
