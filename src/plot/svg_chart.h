// SPDX-License-Identifier: Apache-2.0
//
// A line chart as an SVG element: no script, no fonts from elsewhere, readable in light and dark.
// Lines differ by colour and by dashes. Points that are no numbers, or that a logarithmic axis
// cannot hold, are left out; a chart without any says so. Its text may be any: html_escape() stands
// between it and the page. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway::plot {

// `text` with the characters that mean something in HTML, SVG and their attributes replaced.
// Control characters, which no page may hold, become spaces; line feeds and tabs stay.
std::string html_escape(std::string_view text);

struct ChartLine {
  std::string label;
  std::vector<std::pair<double, double>> points;  // x, y
};

// A value of y worth seeing: a thin line across the chart.
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

inline constexpr std::size_t kChartColours = 9;
// A line with more points is thinner and has no dots at them.
inline constexpr std::size_t kMaxDots = 60;

std::string svg_of(const Chart& chart);

// The colour of line `index`, as HTML knows it.
const char* chart_colour(std::size_t index);

}  // namespace spillway::plot
