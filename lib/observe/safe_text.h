// SPDX-License-Identifier: Apache-2.0
//
// Text for places such as signal handlers: no allocation, no locale, no stdio, no failure.
//
// Fixed-size text holds names and messages from outside, as UTF-8 that any JSON or metrics reader
// takes. SignalText gathers text for a descriptor in a small buffer on the stack. end_line() writes
// it in one write() unless it is longer than the buffer. Text that cannot be written is lost.
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

// Copies as much of `text` as fits into `out` with a terminating zero, cut between characters.
// Bytes outside a UTF-8 character, and zeros, become '?'.
void copy_clean(std::string_view text, std::span<char> out);

std::string clean_text(std::string_view text);

class SignalText {
 public:
  // Small: alternative signal stacks often have 8 KiB.
  static constexpr std::size_t kBufferBytes = 2048;

  explicit SignalText(int fd) : fd_(fd) {}

  SignalText& text(std::string_view text);
  SignalText& number(std::int64_t number);
  // Adds a JSON string; `text` is UTF-8.
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
