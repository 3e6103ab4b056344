// SPDX-License-Identifier: Apache-2.0
//
// Lines and words of a text, for the readers of text traces. Views into the text; no copies.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace spillway::emulate {

class TextLines {
 public:
  explicit TextLines(std::string_view text) : rest_(text) {}

  // The next line without its end; false after the last.
  bool next(std::string_view& line) {
    if (rest_.empty()) {
      return false;
    }
    const std::size_t end = rest_.find('\n');
    line = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    ++number_;
    return true;
  }
  std::size_t number() const { return number_; }  // of the latest line, from 1

 private:
  std::string_view rest_;
  std::size_t number_ = 0;
};

// Replaces `words` by at most the first `most` words of the line.
inline void split_words(std::string_view line, std::vector<std::string_view>& words,
                        std::size_t most = 64) {
  constexpr std::string_view kSpace = " \t\r\f\v";
  words.clear();
  std::size_t from = line.find_first_not_of(kSpace);
  while (from != std::string_view::npos && words.size() < most) {
    const std::size_t end = line.find_first_of(kSpace, from);
    words.push_back(line.substr(from, end == std::string_view::npos ? end : end - from));
    from = end == std::string_view::npos ? end : line.find_first_not_of(kSpace, end);
  }
}

template <typename T>
std::optional<T> whole_number(std::string_view word) {
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) {
    return std::nullopt;
  }
  return value;
}

}  // namespace spillway::emulate
