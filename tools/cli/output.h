// SPDX-License-Identifier: Apache-2.0
//
// The output of commands: tables for the terminal, and result files at paths given by the user.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/own_file.h"
#include "tools/cli/commands.h"

namespace spillway::cli {

// ------------------------------------------------------------------ tables

// A table for the terminal: columns as wide as their widest cell, numbers right-aligned. Control
// characters in cells are made visible, because names come from other machines.

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

// ------------------------------------------------------------------ files

// Result files at paths given by the user. /dev/stdout, pipes and the user's own links work; links
// and files of other users are refused (base/own_file.h). Other users may read the files.

// Throws CommandError with `named` (such as "--out: "), the reason and `hint`.
inline void write_output(const std::string& path, std::string_view content,
                         std::string_view named = {}, std::string_view hint = {}) {
  const base::Status status = base::write_own_file(path, content, base::Readers::kEveryone);
  if (!status.ok()) {
    throw CommandError(fmt::format("{}{}{}", named, status.message(), hint));
  }
}

struct CloseOutput {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OutputFile = std::unique_ptr<std::FILE, CloseOutput>;

// For results that are written as they arrive.
inline OutputFile open_output(const std::string& path, std::string_view named = {}) {
  const int fd =
      base::open_own_file(path.c_str(), base::Opening::kTruncate, base::Readers::kEveryone);
  OutputFile file(fd < 0 ? nullptr : ::fdopen(fd, "w"));
  if (!file) {
    throw CommandError(fmt::format("{}{}", named, base::not_opened(path, errno).message()));
  }
  return file;
}

}  // namespace spillway::cli
