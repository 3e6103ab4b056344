// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace spillway::base {
namespace {

// The length of the text's first character if it is printable, else 0.
std::size_t printable_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) {
    return first >= 0x20 && first != 0x7F ? 1 : 0;
  }
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) {
    return 0;
  }
  std::uint32_t code = first & (0x7FU >> size);
  for (const char next : text.substr(1, size - 1)) {
    if ((static_cast<unsigned char>(next) & 0xC0U) != 0x80U) {
      return 0;
    }
    code = code << 6U | (static_cast<unsigned char>(next) & 0x3FU);
  }
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  const std::uint32_t least = size == 4 ? 0x10000 : size == 3 ? 0x800 : 0xA0;
  return code >= least && code <= 0x10FFFF && !is_surrogate ? size : 0;
}

}  // namespace

std::string printable(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const bool is_kept = kept.find(text[0]) != std::string_view::npos;
    const std::size_t size = is_kept ? 1 : printable_bytes(text);
    if (size == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

std::string printable_prefix(std::string_view text, std::size_t most) {
  std::string out = printable(text);
  if (out.size() > most) {
    const auto is_inside = [&](std::size_t at) {
      return (static_cast<unsigned char>(out[at]) & 0xC0U) == 0x80U;
    };
    while (most > 0 && is_inside(most)) {
      --most;
    }
    out.resize(most);
  }
  return out;
}

}  // namespace spillway::base
