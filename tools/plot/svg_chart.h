// SPDX-License-Identifier: Apache-2.0
//
// A line chart or a bar chart as an SVG element: no script, no external fonts, readable in light
// and dark. Lines differ by colour and by dashes. Points that are not finite, or that a logarithmic
// axis cannot show, are left out; an empty chart says so. Any text is safe, because html_escape()
// escapes it. Pure.
#pragma once

#include <cstddef>
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

}  // namespace spillway::plot
