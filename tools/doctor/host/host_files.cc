// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/host/host_files.h"

#include <charconv>
#include <fstream>
#include <system_error>

namespace spillway::doctor {
namespace {

constexpr std::size_t kMaxBytes = 64 * 1024;

}  // namespace

std::optional<std::string> HostFiles::read(std::string_view path) const {
  std::ifstream file(root_ / path);
  if (!file) {
    return std::nullopt;
  }
  std::string text(kMaxBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) {
    return std::nullopt;
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return text;
}

std::optional<unsigned long long> HostFiles::read_number(std::string_view path) const {
  const std::optional<std::string> text = read(path);
  unsigned long long number = 0;
  if (!text ||
      std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc()) {
    return std::nullopt;
  }
  return number;
}

bool HostFiles::exists(std::string_view path) const {
  std::error_code ignored;
  return std::filesystem::exists(root_ / path, ignored);
}

}  // namespace spillway::doctor
