// SPDX-License-Identifier: Apache-2.0
#include "runtime/clean_text.h"

#include <algorithm>
#include <cstdint>

namespace spillway::runtime {
namespace {

bool is_continuation(char byte) {
  return (static_cast<std::uint8_t>(byte) & 0xC0) == 0x80;
}

// What a first byte announces; 0 for one that begins nothing.
std::size_t announced_length(std::uint8_t first) {
  if (first < 0x80) {
    return first == 0 ? 0 : 1;
  }
  if (first >= 0xC2 && first < 0xE0) {
    return 2;
  }
  if (first >= 0xE0 && first < 0xF0) {
    return 3;
  }
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

// Longer forms of short characters, surrogates, and what lies behind the last character.
bool is_forbidden(std::uint8_t first, std::uint8_t second) {
  return (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
         (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
}

// Of the character that `text`, which is not empty, begins with; 0 where it begins with none.
std::size_t character_length(std::string_view text) {
  const auto first = static_cast<std::uint8_t>(text[0]);
  const std::size_t length = announced_length(first);
  if (length > text.size() ||
      !std::all_of(text.begin() + (length > 0 ? 1 : 0), text.begin() + length, is_continuation)) {
    return 0;
  }
  return length > 2 && is_forbidden(first, static_cast<std::uint8_t>(text[1])) ? 0 : length;
}

}  // namespace

void copy_clean(std::string_view text, std::span<char> out) {
  std::size_t used = 0;
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    const std::size_t taken = std::max<std::size_t>(length, 1);
    if (used + taken + 1 > out.size()) {
      break;
    }
    std::copy_n(length == 0 ? "?" : text.data(), taken, out.begin() + used);
    used += taken;
    text.remove_prefix(taken);
  }
  if (!out.empty()) {
    out[used] = '\0';
  }
}

std::string clean_text(std::string_view text) {
  std::string out(text.size() + 1, '\0');
  copy_clean(text, out);
  out.pop_back();
  return out;
}

}  // namespace spillway::runtime
