// SPDX-License-Identifier: Apache-2.0
#include "tools/plot/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace spillway::plot {
namespace {

constexpr double kWantedTicks = 5;
constexpr std::array<double, 3> kMantissas = {1, 2, 5};
constexpr int kMaxDecadesInSteps = 3;  // an axis that spans more has one tick per decade

// The round numbers 1, 2, 5, 10, 20, ... by index; index 0 is 1.
double round_number(int place) {
  const int decade = static_cast<int>(std::floor(place / 3.0));
  return kMantissas[static_cast<std::size_t>(place - 3 * decade)] * std::pow(10.0, decade);
}

// The index of the largest round number that does not exceed `value`.
int place_below(double value) {
  int place = static_cast<int>(std::floor(3 * std::log10(value))) + 1;
  while (round_number(place) > value * (1 + 1e-9)) {
    --place;
  }
  return place;
}

int place_above(double value) {
  const int below = place_below(value);
  return round_number(below) >= value * (1 - 1e-9) ? below : below + 1;
}

std::vector<double> linear_ticks(double low, double high) {
  const double step = round_number(place_above((high - low) / kWantedTicks));
  const double first = std::floor(low / step + 1e-9);
  const double last = std::max(first + 1, std::ceil(high / step - 1e-9));
  std::vector<double> ticks;
  for (double i = first; i <= last && ticks.size() < kMaxTicks; i += 1) {
    ticks.push_back(i * step);
  }
  return ticks;
}

std::vector<double> logarithmic_ticks(double low, double high) {
  int first = place_below(low);
  int last = std::max(place_above(high), first + 1);
  int every = 1;
  if (last - first > 3 * kMaxDecadesInSteps) {
    every = 3;
    first = 3 * static_cast<int>(std::floor(first / 3.0));
    last = 3 * static_cast<int>(std::ceil(last / 3.0));
  }
  std::vector<double> ticks;
  for (int place = first; place < last + every; place += every) {
    ticks.push_back(round_number(place));
  }
  return ticks;
}

// Makes an extent usable for an axis: not empty, and within reasonable bounds.
Extent sane(Extent values, double least, double most) {
  if (values.is_empty()) {
    return {least > 0 ? 1.0 : 0.0, least > 0 ? 10.0 : 1.0};
  }
  return {std::clamp(values.low, least, most), std::clamp(values.high, least, most)};
}

}  // namespace

void Extent::include(double value) {
  low = std::min(low, value);
  high = std::max(high, value);
}

Axis::Axis(std::vector<double> ticks, bool is_logarithmic, Span positions)
    : ticks_(std::move(ticks)), is_logarithmic_(is_logarithmic), positions_(positions) {}

Axis Axis::linear(const Extent& values, Span positions) {
  Extent held = sane(values, -1e15, 1e15);
  held.low = std::min(0.0, held.low);
  held.high = std::max(0.0, held.high);
  if (held.high - held.low < 1e-12) {
    held.high = held.low + 1;
  }
  return Axis(linear_ticks(held.low, held.high), false, positions);
}

Axis Axis::logarithmic(const Extent& values, Span positions) {
  const Extent held = sane(values, 1e-30, 1e30);
  return Axis(logarithmic_ticks(held.low, held.high), true, positions);
}

double Axis::scaled(double value) const {
  return is_logarithmic_ ? std::log10(std::max(value, 1e-30)) : value;
}

double Axis::position(double value) const {
  const double low = scaled(ticks_.front());
  const double share = (scaled(value) - low) / (scaled(ticks_.back()) - low);
  return positions_.from + share * (positions_.to - positions_.from);
}

std::string tick_label(double value) {
  if (std::abs(value) >= 1e6 && std::abs(value) < 1e12) {
    return fmt::format("{:g}M", value / 1e6);
  }
  if (std::abs(value) >= 1e4 && std::abs(value) < 1e6) {
    return fmt::format("{:g}k", value / 1e3);
  }
  return fmt::format("{:g}", value);
}

}  // namespace spillway::plot
