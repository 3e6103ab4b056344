// SPDX-License-Identifier: Apache-2.0
//
// What tests of generated text ask of it.
#pragma once

#include <cstddef>
#include <string>

namespace spillway::plot {

// How often `part` stands in `text`.
inline std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

}  // namespace spillway::plot
