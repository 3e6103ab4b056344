// SPDX-License-Identifier: Apache-2.0
//
// Result files at paths given by the user. /dev/stdout, pipes and the user's own links work; links
// and files of other users are refused (base/own_file.h). Other users may read the files.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "base/own_file.h"
#include "tools/cli/commands.h"

namespace spillway::cli {

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
