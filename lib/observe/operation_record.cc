// SPDX-License-Identifier: Apache-2.0
#include "observe/operation_record.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>

namespace spillway::observe {

const char* operation_state_name(OperationState state) {
  switch (state) {
    case OperationState::kQueued:
      return "queued";
    case OperationState::kRunning:
      return "running";
    case OperationState::kDone:
      return "done";
    case OperationState::kFailed:
      return "failed";
  }
  return "unknown";
}

void OperationRecord::add_late_rank(std::uint32_t rank) {
  if (late_count < kMaxLateRanks) {
    late_ranks[late_count] = rank;
  }
  ++late_count;
}

void OperationRecord::fail(base::StatusCode code, std::string_view why, std::int32_t culprit,
                           base::Instant at) {
  state = OperationState::kFailed;
  error = code;
  culprit_rank = culprit;
  finished = at;
  copy_clean(why, message);
}

namespace {

bool is_continuation(char byte) {
  return (static_cast<std::uint8_t>(byte) & 0xC0) == 0x80;
}

// Character length that a first byte announces; 0 if no character begins with it.
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

// Overlong encodings, surrogates, and code points past the last character.
bool is_forbidden(std::uint8_t first, std::uint8_t second) {
  return (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
         (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
}

// Length of the first character of `text`, which is not empty; 0 if it is malformed.
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

}  // namespace spillway::observe
