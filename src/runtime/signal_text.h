// SPDX-License-Identifier: Apache-2.0
//
// Text to a descriptor from a place where next to nothing is allowed, such as a signal handler: no
// allocation, no locale, no stdio. Text gathers in a small buffer on the stack and leaves with
// end_line(), in one write() unless it is longer than the buffer.
//
// What cannot be written is lost. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spillway::runtime {

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
