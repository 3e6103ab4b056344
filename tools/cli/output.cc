// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"

namespace spillway::cli {

TextTable::TextTable(std::vector<std::string> headings) : rows_{std::move(headings)} {}

void TextTable::add_row(std::vector<std::string> cells) {
  cells.resize(rows_.front().size());
  for (std::string& cell : cells) {
    cell = base::printable(cell);
  }
  rows_.push_back(std::move(cells));
}

std::string TextTable::to_string() const {
  std::vector<std::size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line = fmt::format("  {:<{}}", row[0], widths[0]);
    for (std::size_t i = 1; i < row.size(); ++i) {
      line += fmt::format("  {:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string format_error(double nmse) {
  return nmse >= 0.001 || nmse == 0.0 ? fmt::format("{:.3g}", nmse) : fmt::format("{:.1e}", nmse);
}

}  // namespace spillway::cli
