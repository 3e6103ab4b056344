// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

namespace spillway::base {

// ------------------------------------------------------------------ quantities

namespace {

struct Unit {
  std::string_view name;
  double factor;
};

struct Measure {
  double number = 0;
  std::string unit;  // in lower case
};

// A double cannot hold every whole number above 2^53.
constexpr double kLargest = 9007199254740992.0;

bool starts_a_number(char c) {
  return (c >= '0' && c <= '9') || c == '.';
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::optional<Measure> split(std::string_view text) {
  Measure measure;
  if (text.empty() || !starts_a_number(text.front())) {
    return std::nullopt;  // std::from_chars would accept -1, inf and nan
  }
  const char* end = text.data() + text.size();
  const auto [rest, error] =
      std::from_chars(text.data(), end, measure.number, std::chars_format::fixed);
  if (error != std::errc()) {
    return std::nullopt;
  }
  for (const char* c = rest; c != end; ++c) {
    measure.unit += lower(*c);
  }
  return measure;
}

// The number times its unit's factor; empty if the text is not a number with one of `units`.
std::optional<double> measured(std::string_view text, std::initializer_list<Unit> units) {
  const std::optional<Measure> measure = split(text);
  if (!measure) {
    return std::nullopt;
  }
  for (const Unit& unit : units) {
    if (measure->unit == unit.name) {
      const double value = measure->number * unit.factor;
      return value <= kLargest ? std::optional(value) : std::nullopt;
    }
  }
  return std::nullopt;
}

Status not_understood(std::string_view text, std::string_view what) {
  return invalid_argument(fmt::format("\"{}\" is not {}", text, what));
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  constexpr double kKibi = 1024.0;
  const auto value = measured(text, {{"", 1},
                                     {"b", 1},
                                     {"k", kKibi},
                                     {"kib", kKibi},
                                     {"kb", 1e3},
                                     {"m", kKibi * kKibi},
                                     {"mib", kKibi * kKibi},
                                     {"mb", 1e6},
                                     {"g", kKibi * kKibi * kKibi},
                                     {"gib", kKibi * kKibi * kKibi},
                                     {"gb", 1e9}});
  if (!value) {
    return not_understood(text, "a size such as 1500, 64k, 64KiB or 10MB");
  }
  return bytes(std::llround(*value));
}

Result<BitRate> parse_rate(std::string_view text) {
  const auto value =
      measured(text, {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"tbit", 1e12}});
  if (!value || std::llround(*value) == 0) {
    return not_understood(text, "a rate above zero such as 100gbit or 2.5gbit");
  }
  return bits_per_second(std::llround(*value));
}

Result<Duration> parse_duration(std::string_view text) {
  if (text == "0") {
    return Duration();
  }
  const auto value = measured(text, {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}});
  if (!value) {
    return not_understood(text, "a time such as 500ns, 10us, 1.5ms or 2s");
  }
  return nanoseconds(std::llround(*value));
}

Result<double> parse_fraction(std::string_view text) {
  const auto value = measured(text, {{"", 1}, {"%", 0.01}, {"ppm", 1e-6}});
  if (!value || *value > 1.0) {
    return not_understood(text, "a share from 0 to 1 such as 1%, 0.01 or 250ppm");
  }
  return *value;
}

// ------------------------------------------------------------------ foreign text

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

}  // namespace spillway::base
