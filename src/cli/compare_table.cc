// SPDX-License-Identifier: Apache-2.0
#include "cli/compare_table.h"

#include "compare/metrics.h"

namespace spillway::cli {
namespace {

std::vector<std::string> headings(const compare::Comparison& comparison) {
  std::vector<std::string> cells = {""};
  for (const compare::RunRecord& run : comparison.runs) {
    cells.push_back(run.transport.name);
    if (cells.size() > 2) {
      cells.emplace_back("ratio");
    }
  }
  return cells;
}

std::vector<std::string> row(const compare::Metric& metric) {
  std::vector<std::string> cells = {metric.label};
  for (std::size_t run = 0; run < metric.values.size(); ++run) {
    const auto& [value, ratio] = std::pair(metric.values[run], metric.ratios[run]);
    cells.push_back(value ? compare::value_text(metric.unit, *value) : "-");
    if (run > 0) {
      cells.push_back(ratio ? compare::ratio_text(*ratio) : "-");
    }
  }
  return cells;
}

}  // namespace

TextTable compare_table(const compare::Comparison& comparison) {
  TextTable table(headings(comparison));
  for (const compare::Metric& metric : compare::metrics_of(comparison)) {
    table.add_row(row(metric));
  }
  return table;
}

}  // namespace spillway::cli
