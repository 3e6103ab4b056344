// SPDX-License-Identifier: Apache-2.0
#include "cli/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace spillway::cli {
namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 400;
constexpr double kLeft = 70;
constexpr double kRight = 170;  // room for the legend
constexpr double kTop = 40;
constexpr double kBottom = 50;

// Distinguishable with common colour blindness (Okabe and Ito), black left for text.
constexpr std::array<const char*, kChartColours> kColours = {"#d55e00", "#0072b2", "#009e73",
                                                             "#cc79a7", "#e69f00", "#56b4e9"};

// Inside the element, so that it looks the same in a page and as a file of its own.
constexpr const char* kStyle =
    "<style>svg{color:#222}text{font:12px system-ui,sans-serif;fill:currentColor}"
    ".title{font-size:15px;font-weight:600}.grid{stroke:currentColor;stroke-opacity:.15}"
    "@media(prefers-color-scheme:dark){svg{color:#ddd}}</style>";

// One axis: values to positions, and where its ticks stand.
class Axis {
 public:
  Axis(double low, double high, bool logarithmic, double from, double to)
      : logarithmic_(logarithmic), from_(from), to_(to) {
    low_ = logarithmic ? std::floor(std::log10(low) + 1e-9) : std::min(0.0, low);
    high_ = logarithmic ? std::ceil(std::log10(high) - 1e-9) : high;
    if (high_ <= low_) {
      high_ = low_ + 1;
    }
  }

  double position(double value) const {
    const double at = logarithmic_ ? std::log10(value) : value;
    return from_ + (at - low_) / (high_ - low_) * (to_ - from_);
  }

  std::vector<double> ticks() const {
    std::vector<double> values;
    if (logarithmic_) {
      for (double exponent = low_; exponent <= high_ + 0.5; exponent += 1) {
        values.push_back(std::pow(10.0, exponent));
      }
    } else {
      for (int i = 0; i <= 5; ++i) {
        values.push_back(low_ + (high_ - low_) * i / 5);
      }
    }
    return values;
  }

 private:
  bool logarithmic_;
  double from_;
  double to_;
  double low_;
  double high_;
};

struct Extent {
  double low = std::numeric_limits<double>::max();
  double high = std::numeric_limits<double>::lowest();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

std::string grid(const Axis& x, const Axis& y) {
  std::string svg;
  for (const double tick : x.ticks()) {
    const double at = x.position(tick);
    svg += fmt::format("<line x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2}' class='grid'/>", at, kTop,
                       kHeight - kBottom);
    svg += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{:g}</text>", at,
                       kHeight - kBottom + 18, tick);
  }
  for (const double tick : y.ticks()) {
    const double at = y.position(tick);
    svg += fmt::format("<line x1='{1}' y1='{0:.1f}' x2='{2}' y2='{0:.1f}' class='grid'/>", at,
                       kLeft, kWidth - kRight);
    svg += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{:g}</text>", kLeft - 8, at + 4,
                       tick);
  }
  return svg;
}

std::string drawn_line(const ChartLine& line, const char* colour, const Axis& x, const Axis& y) {
  std::string path;
  std::string dots;
  for (const auto& [px, py] : line.points) {
    path += fmt::format("{:.1f},{:.1f} ", x.position(px), y.position(py));
    dots += fmt::format(
        "<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'><title>{}: {:g}, {:.3g}"
        "</title></circle>",
        x.position(px), y.position(py), colour, html_escape(line.label), px, py);
  }
  return fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='2'/>{}", path,
                     colour, dots);
}

std::string legend_entry(const std::string& label, const char* colour, std::size_t index) {
  const double at = kTop + 10 + 20 * static_cast<double>(index);
  return fmt::format(
      "<line x1='{0}' y1='{1}' x2='{2}' y2='{1}' stroke='{3}' stroke-width='3'/>"
      "<text x='{4}' y='{5}'>{6}</text>",
      kWidth - kRight + 14, at, kWidth - kRight + 34, colour, kWidth - kRight + 40, at + 4,
      html_escape(label));
}

}  // namespace

std::string html_escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string svg_of(const Chart& chart) {
  SPILLWAY_CHECK(chart.lines.size() <= kChartColours);
  Extent xs;
  Extent ys;
  for (const ChartLine& line : chart.lines) {
    for (const auto& [x, y] : line.points) {
      xs.include(x);
      ys.include(y);
    }
  }
  const Axis x(xs.low, xs.high, chart.log_x, kLeft, kWidth - kRight);
  const Axis y(ys.low, ys.high, chart.log_y, kHeight - kBottom, kTop);
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}' role='img' aria-label='{}'>{}"
      "<text x='{}' y='22' class='title'>{}</text>",
      kWidth, kHeight, html_escape(chart.title), kStyle, kLeft, html_escape(chart.title));
  svg += grid(x, y);
  for (std::size_t i = 0; i < chart.lines.size(); ++i) {
    svg += drawn_line(chart.lines[i], kColours[i], x, y);
    svg += legend_entry(chart.lines[i].label, kColours[i], i);
  }
  svg += fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text>",
                     (kLeft + kWidth - kRight) / 2, kHeight - 8, html_escape(chart.x_label));
  svg += fmt::format(
      "<text transform='translate(16 {}) rotate(-90)' text-anchor='middle'>{}</text></svg>",
      (kTop + kHeight - kBottom) / 2, html_escape(chart.y_label));
  return svg;
}

}  // namespace spillway::cli
