// SPDX-License-Identifier: Apache-2.0
//
// One axis of a chart: the positions of values, and which values are labelled. Its ends are round
// numbers that enclose all values; a linear axis begins at 0 unless values are below it. Pure. For
// any values there are at most kMaxTicks ticks, and all positions are finite.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace spillway::plot {

inline constexpr std::size_t kMaxTicks = 64;

// The range of values that an axis has to show.
struct Extent {
  double low = std::numeric_limits<double>::max();
  double high = std::numeric_limits<double>::lowest();

  bool is_empty() const { return low > high; }
  void include(double value);
};

// Positions of an axis's two ends, in either direction.
struct Span {
  double from = 0.0;
  double to = 1.0;
};

class Axis {
 public:
  static Axis linear(const Extent& values, Span positions);
  // For positive values.
  static Axis logarithmic(const Extent& values, Span positions);

  double position(double value) const;
  // In rising order, from one end of the axis to the other.
  const std::vector<double>& ticks() const { return ticks_; }

 private:
  Axis(std::vector<double> ticks, bool is_logarithmic, Span positions);
  double scaled(double value) const;

  std::vector<double> ticks_;
  bool is_logarithmic_;
  Span positions_;
};

// Formats like 0.001, 250, 20k, 1.5M.
std::string tick_label(double value);

}  // namespace spillway::plot
