// SPDX-License-Identifier: Apache-2.0
#include "observe/identity.h"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace spillway::runtime {
namespace {

std::string as_file_name(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

std::string meaning_of(char letter, const Identity* identity) {
  switch (letter) {
    case 'h':
      return host_name();
    case 'p':
      return std::to_string(::getpid());
    case '%':
      return "%";
    case 'r':
      return identity == nullptr ? "%r" : std::to_string(identity->rank);
    case 'c':
      return identity == nullptr ? "%c" : as_file_name(identity->communicator);
    default:
      return {'%', letter};
  }
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) {
    return "unknown";
  }
  const std::string_view text = name.data();
  return std::string(text.substr(0, text.find('.')));
}

std::string expand_path(std::string_view pattern, const Identity* identity) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '%' && i + 1 < pattern.size()) {
      path += meaning_of(pattern[++i], identity);
    } else {
      path += pattern[i];
    }
  }
  return path;
}

}  // namespace spillway::runtime
