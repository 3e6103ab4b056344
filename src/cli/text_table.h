// SPDX-License-Identifier: Apache-2.0
//
// A table for the terminal: columns as wide as their widest cell, numbers to the right. Control
// characters in cells are shown and not obeyed: names come from other machines.
#pragma once

#include <string>
#include <vector>

namespace spillway::cli {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> headings);

  void add_row(std::vector<std::string> cells);
  // The first column is aligned to the left, the others to the right.
  std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the headings first
};

// 0.571, 0.0358, 4.5e-05: three digits, without an exponent while that stays readable.
std::string format_error(double nmse);

}  // namespace spillway::cli
