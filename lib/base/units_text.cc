// SPDX-License-Identifier: Apache-2.0
#include "base/units_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string>

namespace spillway::base {
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

}  // namespace spillway::base
