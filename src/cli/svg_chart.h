// SPDX-License-Identifier: Apache-2.0
//
// A line chart as an SVG element: no script, no fonts from elsewhere, readable in light and dark.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace spillway::cli {

struct ChartLine {
  std::string label;
  std::vector<std::pair<double, double>> points;  // x, y; y > 0 on a logarithmic axis
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = false;
  bool log_y = false;
  std::vector<ChartLine> lines;  // at most kChartColours
};

inline constexpr std::size_t kChartColours = 6;

std::string svg_of(const Chart& chart);

// `text` with the characters that mean something in HTML replaced.
std::string html_escape(const std::string& text);

}  // namespace spillway::cli
