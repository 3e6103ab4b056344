// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tools/plot/svg_chart.h"
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

namespace {

constexpr Span kPixels = {100, 300};

TEST(Axis, ALinearOneBeginsAtZeroAndEndsAtARoundNumber) {
  const Axis axis = Axis::linear({3, 87}, kPixels);
  EXPECT_EQ(axis.ticks(), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_DOUBLE_EQ(axis.position(0), 100);
  EXPECT_DOUBLE_EQ(axis.position(50), 200);
  EXPECT_DOUBLE_EQ(axis.position(100), 300);
}

TEST(Axis, ValuesBelowZeroHaveRoom) {
  const Axis axis = Axis::linear({-3, 1}, kPixels);
  EXPECT_EQ(axis.ticks().front(), -3);
  EXPECT_EQ(axis.ticks().back(), 1);
}

TEST(Axis, PositionsMayFall) {
  const Axis axis = Axis::linear({0, 10}, {300, 100});
  EXPECT_DOUBLE_EQ(axis.position(10), 100);
  EXPECT_DOUBLE_EQ(axis.position(5), 200);
}

TEST(Axis, ALogarithmicOneHasStepsWithinFewDecades) {
  const Axis axis = Axis::logarithmic({80, 474}, kPixels);
  EXPECT_EQ(axis.ticks(), (std::vector<double>{50, 100, 200, 500}));
  EXPECT_DOUBLE_EQ(axis.position(50), 100);
  EXPECT_DOUBLE_EQ(axis.position(500), 300);
  EXPECT_NEAR(axis.position(std::sqrt(50.0 * 500.0)), 200, 1e-9);
}

TEST(Axis, ALogarithmicOneHasDecadesOverMany) {
  const Axis axis = Axis::logarithmic({3e-5, 0.7}, kPixels);
  ASSERT_EQ(axis.ticks().size(), 6U);
  EXPECT_DOUBLE_EQ(axis.ticks().front(), 1e-5);
  EXPECT_DOUBLE_EQ(axis.ticks().back(), 1);
}

TEST(Axis, RoundEndsStayWhereTheyAre) {
  EXPECT_EQ(Axis::logarithmic({1, 100}, kPixels).ticks().back(), 100);
  EXPECT_EQ(Axis::linear({0, 1}, kPixels).ticks().back(), 1);
}

TEST(Axis, WhateverTheValuesTicksAreFewAndPositionsAreNumbers) {
  const double huge = std::numeric_limits<double>::max();
  const double infinite = std::numeric_limits<double>::infinity();
  for (const Extent& extent : {Extent(), Extent{5, 5}, Extent{0, 0}, Extent{-1, -1},
                               Extent{-huge, huge}, Extent{0, infinite}, Extent{1e-300, 1e-299}}) {
    for (const Axis& axis : {Axis::linear(extent, kPixels), Axis::logarithmic(extent, kPixels)}) {
      EXPECT_GE(axis.ticks().size(), 2U);
      EXPECT_LE(axis.ticks().size(), kMaxTicks);
      EXPECT_TRUE(std::is_sorted(axis.ticks().begin(), axis.ticks().end()));
      EXPECT_TRUE(std::isfinite(axis.position(1)));
      EXPECT_TRUE(std::isfinite(axis.position(0)));
    }
  }
}

TEST(Axis, LabelsAreShort) {
  EXPECT_EQ(tick_label(0), "0");
  EXPECT_EQ(tick_label(0.001), "0.001");
  EXPECT_EQ(tick_label(250), "250");
  EXPECT_EQ(tick_label(20'000), "20k");
  EXPECT_EQ(tick_label(1'500'000), "1.5M");
  EXPECT_EQ(tick_label(-20'000), "-20k");
}

}  // namespace

}  // namespace spillway::plot
