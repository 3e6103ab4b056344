// SPDX-License-Identifier: Apache-2.0
#include "tools/plot/svg_chart.h"

#include <gtest/gtest.h>

#include <limits>

#include "tools/plot/text_testing.h"

namespace spillway::plot {
namespace {

TEST(HtmlText, NothingOfTheTextIsMarkup) {
  EXPECT_EQ(html_escape("<script src='x' y=\"z\">&amp;</script>"),
            "&lt;script src=&#39;x&#39; y=&quot;z&quot;&gt;&amp;amp;&lt;/script&gt;");
}

TEST(HtmlText, OtherLettersStay) {
  EXPECT_EQ(html_escape("a\tb\n\xC3\xA9 {backend}"), "a\tb\n\xC3\xA9 {backend}");
}

TEST(HtmlText, ControlCharactersBecomeSpaces) {
  EXPECT_EQ(html_escape(std::string("a\0\x1B[1m\x7F", 7)), "a  [1m ");
}

Chart chart_of(std::vector<ChartLine> lines) {
  Chart chart;
  chart.title = "a < b";
  chart.lines = std::move(lines);
  return chart;
}

TEST(SvgChart, PointsStandWhereTheAxesSay) {
  const std::string svg = svg_of(chart_of({{"one", {{0, 0}, {100, 100}}}}));
  EXPECT_NE(svg.find("<polyline points='70.0,350.0 550.0,40.0 '"), std::string::npos) << svg;
  EXPECT_EQ(count(svg, "<circle"), 2U);
}

TEST(SvgChart, ItsTextIsNotMarkup) {
  Chart chart = chart_of({{"<b>", {{1, 1}}}});
  chart.guides = {{0.5, "<i>"}};
  const std::string svg = svg_of(chart);
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_EQ(count(svg, "<b>") + count(svg, "<i>"), 0U);
  EXPECT_EQ(count(svg, "&lt;i&gt;"), 1U);
}

TEST(SvgChart, LongLinesHaveNoDots) {
  ChartLine line{"long", {}};
  for (std::size_t i = 0; i <= kMaxDots; ++i) {
    line.points.emplace_back(i, i);
  }
  EXPECT_EQ(count(svg_of(chart_of({line})), "<circle"), 0U);
}

TEST(SvgChart, WhatCannotBeShownIsLeftOut) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Chart chart = chart_of({{"one", {{1, 1}, {nan, 1}, {1, nan}, {0, 1}, {1, -1}, {10, 10}}}});
  chart.log_x = chart.log_y = true;
  const std::string svg = svg_of(chart);
  EXPECT_EQ(count(svg, "<circle"), 2U);
  EXPECT_EQ(count(svg, "nan") + count(svg, "inf"), 0U);
}

TEST(SvgChart, AChartWithoutPointsSaysSo) {
  EXPECT_NE(svg_of(chart_of({})).find("nothing to show"), std::string::npos);
  EXPECT_NE(svg_of(chart_of({{"none", {}}})).find("nothing to show"), std::string::npos);
}

TEST(SvgChart, BarsBeginAtZeroAndHaveTheirTickAndNote) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = svg_of(BarChart{
      "a < b", "ms", {{"<i>", 50, 100, "half"}, {"two", 100, {}, ""}, {"none", {}, nan, "-"}}});
  // Between 170 and 470 lie 0 and 100.
  EXPECT_NE(svg.find("<rect x='170' y='46.0' width='150.0' height='16'"), std::string::npos) << svg;
  EXPECT_NE(svg.find("<line x1='470.0' y1='43.0' x2='470.0' y2='65.0' stroke="), std::string::npos)
      << svg;
  EXPECT_EQ(count(svg, "<rect"), 2U);
  EXPECT_EQ(count(svg, "stroke-width='2'"), 1U);
  EXPECT_EQ(count(svg, ">half</text>"), 1U);
  EXPECT_EQ(count(svg, "<i>") + count(svg, "nan"), 0U);
}

TEST(SvgChart, LinesDifferByColourAndDashes) {
  std::vector<ChartLine> lines(kChartColours, {"same", {{1, 1}, {2, 2}}});
  const std::string svg = svg_of(chart_of(lines));
  for (std::size_t i = 0; i < kChartColours; ++i) {
    EXPECT_EQ(count(svg, chart_colour(i)), 4U) << i;  // line, its dots, legend
  }
  EXPECT_EQ(count(svg, "stroke-dasharray='none'"), 2U);
}

}  // namespace

}  // namespace spillway::plot
