// SPDX-License-Identifier: Apache-2.0
#include "runtime/signal_text.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>

namespace spillway::runtime {

SignalText& SignalText::text(std::string_view text) {
  for (const char c : text) {
    put(c);
  }
  return *this;
}

SignalText& SignalText::number(std::int64_t number) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  return text({digits.data(), static_cast<std::size_t>(end - digits.data())});
}

SignalText& SignalText::quoted(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  put('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      this->text("\\u00");
      put(kHex[byte >> 4]);
      put(kHex[byte & 15]);
      continue;
    }
    if (c == '"' || c == '\\') {
      put('\\');
    }
    put(c);
  }
  put('"');
  return *this;
}

void SignalText::end_line() {
  put('\n');
  flush();
}

void SignalText::put(char c) {
  if (used_ == buffer_.size()) {
    flush();
  }
  buffer_[used_++] = c;
}

void SignalText::flush() {
  std::string_view rest(buffer_.data(), used_);
  used_ = 0;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written > 0) {
      rest.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace spillway::runtime
