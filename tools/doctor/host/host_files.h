// SPDX-License-Identifier: Apache-2.0
//
// The files in which the kernel describes the host, below a root folder: "/" for the host itself,
// any other folder for a test. Only reads. Any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace spillway::doctor {

class HostFiles {
 public:
  explicit HostFiles(std::filesystem::path root = "/") : root_(std::move(root)) {}

  // Returns the file without its last line's end, at most 64 KiB; nothing if it cannot be read.
  // `path` is relative to the root: "proc/mounts".
  std::optional<std::string> read(std::string_view path) const;
  // Reads a file that holds one number.
  std::optional<unsigned long long> read_number(std::string_view path) const;
  bool exists(std::string_view path) const;

 private:
  std::filesystem::path root_;
};

}  // namespace spillway::doctor
