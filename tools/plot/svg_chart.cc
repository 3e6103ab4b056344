// SPDX-License-Identifier: Apache-2.0
#include "tools/plot/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace spillway::plot {

namespace {

std::string escaped(char c) {
  switch (c) {
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '&':
      return "&amp;";
    case '\'':
      return "&#39;";
    case '"':
      return "&quot;";
    case '\n':
    case '\t':
      return {c};
    default:
      return {static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c};
  }
}

constexpr double kWidth = 720;
constexpr double kHeight = 400;
constexpr double kLeft = 70;
constexpr double kRight = 170;  // room for the legend
constexpr double kTop = 40;
constexpr double kBottom = 50;

// Distinguishable with common colour blindness (Okabe and Ito); black is left for text. The last
// three are not of that set and differ by their dashes.
constexpr std::array<const char*, kChartColours> kColours = {"#d55e00", "#0072b2", "#009e73",
                                                             "#cc79a7", "#e69f00", "#56b4e9",
                                                             "#8c6bb1", "#7f7f7f", "#9a6324"};
constexpr std::array<const char*, kChartColours> kDashes = {
    "none", "9 3", "3 3", "12 3 3 3", "6 6", "1 3", "9 3 1 3 1 3", "2 6", "15 5"};

// Inside the element, so that the chart looks the same in a page and as a standalone file.
constexpr const char* kStyle =
    "<style>svg{color:#222}text{font:12px system-ui,sans-serif;fill:currentColor}"
    ".title{font-size:15px;font-weight:600}.grid{stroke:currentColor;stroke-opacity:.15}"
    ".guide{stroke:currentColor;stroke-opacity:.6;stroke-dasharray:2 4}"
    "@media(prefers-color-scheme:dark){svg{color:#ddd}}</style>";

bool is_shown(const Chart& chart, const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second) &&
         (!chart.log_x || point.first > 0) && (!chart.log_y || point.second > 0);
}

std::vector<ChartLine> shown_lines(const Chart& chart) {
  std::vector<ChartLine> lines = chart.lines;
  for (ChartLine& line : lines) {
    std::erase_if(line.points, [&chart](const auto& point) { return !is_shown(chart, point); });
  }
  return lines;
}

struct Axes {
  Axis x;
  Axis y;
};

Axes axes_for(const Chart& chart, const std::vector<ChartLine>& lines) {
  Extent xs;
  Extent ys;
  for (const ChartLine& line : lines) {
    for (const auto& [x, y] : line.points) {
      xs.include(x);
      ys.include(y);
    }
  }
  for (const ChartGuide& guide : chart.guides) {
    ys.include(guide.y);
  }
  const auto axis = [](bool is_logarithmic, const Extent& extent, Span span) {
    return is_logarithmic ? Axis::logarithmic(extent, span) : Axis::linear(extent, span);
  };
  return {axis(chart.log_x, xs, {kLeft, kWidth - kRight}),
          axis(chart.log_y, ys, {kHeight - kBottom, kTop})};
}

std::string grid(const Axes& axes) {
  std::string svg;
  for (const double tick : axes.x.ticks()) {
    const double at = axes.x.position(tick);
    svg += fmt::format("<line x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2}' class='grid'/>", at, kTop,
                       kHeight - kBottom);
    svg += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{}</text>", at,
                       kHeight - kBottom + 18, tick_label(tick));
  }
  for (const double tick : axes.y.ticks()) {
    const double at = axes.y.position(tick);
    svg += fmt::format("<line x1='{1}' y1='{0:.1f}' x2='{2}' y2='{0:.1f}' class='grid'/>", at,
                       kLeft, kWidth - kRight);
    svg += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{}</text>", kLeft - 8, at + 4,
                       tick_label(tick));
  }
  return svg;
}

// The label stands above the line, or below it near the title.
std::string drawn_guide(const ChartGuide& guide, const Axis& y) {
  const double at = y.position(guide.y);
  const double label_at = at < kTop + 18 ? at + 14 : at - 5;
  return fmt::format(
      "<line x1='{1}' y1='{0:.1f}' x2='{2}' y2='{0:.1f}' class='guide'/>"
      "<text x='{3}' y='{4:.1f}'>{5}</text>",
      at, kLeft, kWidth - kRight, kLeft + 6, label_at, html_escape(guide.label));
}

bool is_dense(const ChartLine& line) {
  return line.points.size() > kMaxDots;
}

std::string dots_of(const ChartLine& line, const char* colour, const Axes& axes) {
  if (is_dense(line)) {
    return {};
  }
  std::string dots;
  for (const auto& [x, y] : line.points) {
    dots += fmt::format(
        "<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'><title>{}: {:g}, {:.3g}"
        "</title></circle>",
        axes.x.position(x), axes.y.position(y), colour, html_escape(line.label), x, y);
  }
  return dots;
}

std::string drawn_line(const ChartLine& line, std::size_t index, const Axes& axes) {
  std::string path;
  for (const auto& [x, y] : line.points) {
    path += fmt::format("{:.1f},{:.1f} ", axes.x.position(x), axes.y.position(y));
  }
  return fmt::format(
      "<polyline points='{}' fill='none' stroke='{}' stroke-width='{}' stroke-linejoin='round' "
      "stroke-dasharray='{}'><title>{}</title></polyline>{}",
      path, kColours[index], is_dense(line) ? 1.25 : 2.0, kDashes[index], html_escape(line.label),
      dots_of(line, kColours[index], axes));
}

std::string legend_entry(const std::string& label, std::size_t index) {
  const double at = kTop + 10 + 20 * static_cast<double>(index);
  return fmt::format(
      "<line x1='{0}' y1='{1}' x2='{2}' y2='{1}' stroke='{3}' stroke-width='3' "
      "stroke-dasharray='{4}'/><text x='{5}' y='{6}'>{7}</text>",
      kWidth - kRight + 14, at, kWidth - kRight + 38, kColours[index], kDashes[index],
      kWidth - kRight + 44, at + 4, html_escape(label));
}

std::string labels_of(const Chart& chart) {
  std::string svg =
      fmt::format("<text x='{}' y='22' class='title'>{}</text>", kLeft, html_escape(chart.title));
  svg += fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text>",
                     (kLeft + kWidth - kRight) / 2, kHeight - 8, html_escape(chart.x_label));
  return svg + fmt::format(
                   "<text transform='translate(16 {}) rotate(-90)' text-anchor='middle'>{}</text>",
                   (kTop + kHeight - kBottom) / 2, html_escape(chart.y_label));
}

// ------------------------------------------------------------------ bars

constexpr double kBarLeft = 170;   // room for labels
constexpr double kBarRight = 250;  // room for notes
constexpr double kBarPitch = 28;
constexpr double kBarHeight = 16;

bool is_bar(const std::optional<double>& value) {
  return value && std::isfinite(*value) && *value >= 0;
}

Axis axis_for(const BarChart& chart) {
  Extent values;
  for (const ChartBar& bar : chart.bars) {
    for (const std::optional<double>& value : {bar.value, bar.tick}) {
      if (is_bar(value)) {
        values.include(*value);
      }
    }
  }
  return Axis::linear(values, {kBarLeft, kWidth - kBarRight});
}

std::string bar_grid(const Axis& x, double bottom) {
  std::string svg;
  for (const double tick : x.ticks()) {
    svg += fmt::format(
        "<line x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2}' class='grid'/>"
        "<text x='{0:.1f}' y='{3}' text-anchor='middle'>{4}</text>",
        x.position(tick), kTop, bottom, bottom + 18, tick_label(tick));
  }
  return svg;
}

std::string drawn_bar(const ChartBar& bar, std::size_t index, const Axis& x) {
  const double top = kTop + kBarPitch * static_cast<double>(index) + (kBarPitch - kBarHeight) / 2;
  const double text = top + kBarHeight / 2 + 4;
  std::string svg = fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{}</text>", kBarLeft - 8,
                                text, html_escape(bar.label));
  if (is_bar(bar.value)) {
    svg += fmt::format("<rect x='{}' y='{:.1f}' width='{:.1f}' height='{}' fill='{}'/>", kBarLeft,
                       top, x.position(*bar.value) - kBarLeft, kBarHeight, kColours[index]);
  }
  if (is_bar(bar.tick)) {
    svg += fmt::format(
        "<line x1='{0:.1f}' y1='{1:.1f}' x2='{0:.1f}' y2='{2:.1f}' stroke='currentColor' "
        "stroke-width='2'/>",
        x.position(*bar.tick), top - 3, top + kBarHeight + 3);
  }
  return svg + fmt::format("<text x='{}' y='{:.1f}'>{}</text>", kWidth - kBarRight + 14, text,
                           html_escape(bar.note));
}

std::string empty_notice() {
  return fmt::format("<text x='{}' y='{}' text-anchor='middle'>nothing to show</text>",
                     (kLeft + kWidth - kRight) / 2, (kTop + kHeight - kBottom) / 2);
}

}  // namespace

std::string html_escape(std::string_view text) {
  std::string all;
  for (const char c : text) {
    all += escaped(c);
  }
  return all;
}

const char* chart_colour(std::size_t index) {
  SPILLWAY_CHECK(index < kChartColours);
  return kColours[index];
}

std::string svg_of(const Chart& chart) {
  SPILLWAY_CHECK(chart.lines.size() <= kChartColours);
  const std::vector<ChartLine> lines = shown_lines(chart);
  const Axes axes = axes_for(chart, lines);
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}' role='img' aria-label='{}'>{}",
      kWidth, kHeight, html_escape(chart.title), kStyle);
  svg += labels_of(chart) + grid(axes);
  for (const ChartGuide& guide : chart.guides) {
    svg += drawn_guide(guide, axes.y);
  }
  bool is_empty = true;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    svg += drawn_line(lines[i], i, axes) + legend_entry(lines[i].label, i);
    is_empty = is_empty && lines[i].points.empty();
  }
  return svg + (is_empty ? empty_notice() : "") + "</svg>";
}

std::string svg_of(const BarChart& chart) {
  SPILLWAY_CHECK(chart.bars.size() <= kChartColours);
  const Axis x = axis_for(chart);
  const double bottom = kTop + kBarPitch * static_cast<double>(chart.bars.size());
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}' role='img' aria-label='{}'>{}"
      "<text x='10' y='22' class='title'>{}</text>"
      "<text x='{}' y='{}' text-anchor='middle'>{}</text>",
      kWidth, bottom + kBottom, html_escape(chart.title), kStyle, html_escape(chart.title),
      (kBarLeft + kWidth - kBarRight) / 2, bottom + kBottom - 8, html_escape(chart.x_label));
  svg += bar_grid(x, bottom);
  for (std::size_t i = 0; i < chart.bars.size(); ++i) {
    svg += drawn_bar(chart.bars[i], i, x);
  }
  return svg + "</svg>";
}

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
Extent usable(Extent values, double least, double most) {
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
  Extent held = usable(values, -1e15, 1e15);
  held.low = std::min(0.0, held.low);
  held.high = std::max(0.0, held.high);
  if (held.high - held.low < 1e-12) {
    held.high = held.low + 1;
  }
  return Axis(linear_ticks(held.low, held.high), false, positions);
}

Axis Axis::logarithmic(const Extent& values, Span positions) {
  const Extent held = usable(values, 1e-30, 1e30);
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
