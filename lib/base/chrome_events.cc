// SPDX-License-Identifier: Apache-2.0
#include "base/chrome_events.h"

#include <fmt/format.h>

namespace spillway::base {

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::size_t TraceLanes::place(Instant start, Instant end) {
  while (!taken_.empty() && taken_.top().first <= start) {
    free_.push(taken_.top().second);
    taken_.pop();
  }
  std::size_t lane = lanes_;
  if (free_.empty()) {
    ++lanes_;
  } else {
    lane = free_.top();
    free_.pop();
  }
  taken_.emplace(end, lane);
  return lane;
}

}  // namespace spillway::base
