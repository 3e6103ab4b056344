// SPDX-License-Identifier: Apache-2.0
//
// A table for the terminal: columns as wide as their widest cell, numbers right-aligned. Control
// characters in cells are made visible, because names come from other machines.
#pragma once

#include <string>
#include <vector>

namespace spillway::cli {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> headings);

  void add_row(std::vector<std::string> cells);
  // The first column is left-aligned, the others right-aligned.
  std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // headings first
};

// 0.571, 0.0358, 4.5e-05: three digits, with an exponent only for small values.
std::string format_error(double nmse);

}  // namespace spillway::cli
