// SPDX-License-Identifier: Apache-2.0
//
// A line chart or a bar chart as an SVG element: no script, no external fonts, readable in light
// and dark. Lines differ by colour and by dashes. Points that are not finite, or that a logarithmic
// axis cannot show, are left out; an empty chart says so. Any text is safe, because html_escape()
// escapes it. Pure.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway::plot {

// Escapes the characters with a meaning in HTML, SVG and their attributes. Control characters,
// which no page may hold, become spaces; line feeds and tabs stay.
std::string html_escape(std::string_view text);

struct ChartLine {
  std::string label;
  std::vector<std::pair<double, double>> points;  // x, y
};

// A notable value of y: a thin line across the chart.
struct ChartGuide {
  double y = 0.0;
  std::string label;
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = false;
  bool log_y = false;
  std::vector<ChartLine> lines;  // at most kChartColours
  std::vector<ChartGuide> guides{};
};

// A horizontal bar from 0 to `value`. The tick stands at another value of the same run.
struct ChartBar {
  std::string label;
  std::optional<double> value;  // null: no bar
  std::optional<double> tick;
  std::string note;  // beside the bar
};

struct BarChart {
  std::string title;
  std::string x_label;
  std::vector<ChartBar> bars;  // from top to bottom, at most kChartColours
};

inline constexpr std::size_t kChartColours = 9;
// A line with more points is thinner and has no dots.
inline constexpr std::size_t kMaxDots = 60;

std::string svg_of(const Chart& chart);
std::string svg_of(const BarChart& chart);

// The colour of line or bar `index`, in HTML notation.
const char* chart_colour(std::size_t index);

// One axis of a chart: the positions of values, and which values are labelled. Its ends are round
// numbers that enclose all values; a linear axis begins at 0 unless values are below it. Pure. For
// any values there are at most kMaxTicks ticks, and all positions are finite.

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
