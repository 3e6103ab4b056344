// SPDX-License-Identifier: Apache-2.0
//
// Text where next to nothing is allowed, such as in a signal handler: no allocation, no locale, no
// stdio, no failure.
//
// Text of a fixed size holds names and messages from outside, as UTF-8 that any reader of JSON or
// of metrics takes. Text to a descriptor gathers in a small buffer on the stack and leaves with
// end_line(), in one write() unless it is longer than the buffer; what cannot be written is lost.
//
// One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace spillway::runtime {

// As much of `text` as fits into `out` with a zero behind it, cut between characters. A byte that
// belongs to no UTF-8 character becomes '?', as does a zero.
void copy_clean(std::string_view text, std::span<char> out);

std::string clean_text(std::string_view text);

class SignalText {
 public:
  // Small: alternative signal stacks often have 8 KiB.
  static constexpr std::size_t kBufferBytes = 2048;

  explicit SignalText(int fd) : fd_(fd) {}

  SignalText& text(std::string_view text);
  SignalText& number(std::int64_t number);
  // As a JSON string; `text` is UTF-8.
  SignalText& quoted(std::string_view text);
  void end_line();

 private:
  void put(char c);
  void flush();

  int fd_;
  std::size_t used_ = 0;
  std::array<char, kBufferBytes> buffer_;
};

}  // namespace spillway::runtime
