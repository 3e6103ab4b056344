// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/rate_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::cli {
namespace {

constexpr double kLeastPlottedError = 1e-12;

plot::ChartLine& line_of(const std::string& family, std::vector<plot::ChartLine>& lines) {
  const auto found = std::find_if(lines.begin(), lines.end(), [&](const plot::ChartLine& line) {
    return line.label == family;
  });
  return found != lines.end() ? *found : lines.emplace_back(plot::ChartLine{family, {}});
}

}  // namespace

TextTable rates_table(const bench::RateDistortion& rates) {
  TextTable table({"code", "bits per value", "error", "encode GB/s", "decode GB/s", "table"});
  for (const bench::RatePoint& point : rates.points) {
    table.add_row({point.speed.codec, fmt::format("{:.2f}", point.speed.wire_bits_per_value),
                   format_error(point.nmse),
                   fmt::format("{:.2f}", point.speed.encode_gigabytes_per_second),
                   fmt::format("{:.2f}", point.speed.decode_gigabytes_per_second), point.table});
  }
  return table;
}

nlohmann::json rates_json(const bench::RateDistortion& rates) {
  nlohmann::json out = nlohmann::json::array();
  for (const bench::RatePoint& point : rates.points) {
    out.push_back({{"family", point.family},
                   {"code", point.speed.codec},
                   {"target", point.speed.target},
                   {"table", point.table},
                   {"bits_per_value", point.speed.wire_bits_per_value},
                   {"nmse", point.nmse},
                   {"encode_gb_per_s", point.speed.encode_gigabytes_per_second},
                   {"decode_gb_per_s", point.speed.decode_gigabytes_per_second}});
  }
  return out;
}

plot::Chart rates_chart(const bench::RateDistortion& rates) {
  plot::Chart chart{.title = "Error against bits per value, code by code",
                    .x_label = "bits per value",
                    .y_label = "error (NMSE)",
                    .log_y = true,
                    .lines = {}};
  for (const bench::RatePoint& point : rates.points) {
    if (point.nmse >= kLeastPlottedError) {
      line_of(point.family, chart.lines)
          .points.emplace_back(point.speed.wire_bits_per_value, point.nmse);
    }
  }
  return chart;
}

}  // namespace spillway::cli
