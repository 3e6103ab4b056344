// SPDX-License-Identifier: Apache-2.0
//
// The keys a directive may have and where their values go. A Setting is a key with a function that
// reads its text; apply_settings() reads a whole directive and, where a key is unknown or a value
// makes no sense, says which line, which key and what would be right.
//
// The functions hold references to what they fill in: a list of settings lives no longer than it.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "sim/scenario_text.h"

namespace spillway::sim {

using SettingReader = std::function<base::Status(std::string_view)>;

struct Setting {
  std::string_view key;
  SettingReader read;
};

base::Status apply_settings(const Directive& directive, const std::vector<Setting>& settings);

// "one, two, three"
std::string joined(const std::vector<std::string_view>& names);

SettingReader to_bytes(base::Bytes& out);
SettingReader to_rate(base::BitRate& out);
SettingReader to_duration(base::Duration& out);
SettingReader to_instant(base::Instant& out);  // as a duration since the start
SettingReader to_fraction(double& out);
SettingReader to_flag(bool& out);  // yes or no
SettingReader to_text(std::string& out);
SettingReader to_decimal(double& out);  // any finite number

base::Status not_in_range(std::string_view text, std::uint64_t least, std::uint64_t most);

// A whole number in [least, most].
template <std::unsigned_integral T>
SettingReader to_number(T& out, std::uint64_t least = 0,
                        std::uint64_t most = std::numeric_limits<T>::max()) {
  return [&out, least, most](std::string_view text) -> base::Status {
    std::uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || value < least || value > most) {
      return not_in_range(text, least, most);
    }
    out = static_cast<T>(value);
    return {};
  };
}

// A size whose count goes into a plain integer.
template <std::unsigned_integral T>
SettingReader to_byte_count(T& out) {
  return [&out](std::string_view text) -> base::Status {
    base::Bytes bytes;
    if (base::Status status = to_bytes(bytes)(text); !status.ok()) {
      return status;
    }
    if (static_cast<std::uint64_t>(bytes.count()) > std::numeric_limits<T>::max()) {
      return not_in_range(text, 0, std::numeric_limits<T>::max());
    }
    out = static_cast<T>(bytes.count());
    return {};
  };
}

// A share, kept as so many per `whole`.
template <std::unsigned_integral T>
SettingReader to_parts(T& out, std::uint32_t whole) {
  return [&out, whole](std::string_view text) -> base::Status {
    double share = 0.0;
    if (base::Status status = to_fraction(share)(text); !status.ok()) {
      return status;
    }
    out = static_cast<T>(share * whole + 0.5);
    return {};
  };
}

template <typename E>
struct Choice {
  std::string_view name;
  E value;
};

// Another type than that of the choices may be assigned to, such as an optional.
template <typename E, typename T>
SettingReader to_choice(T& out, std::vector<Choice<E>> choices) {
  return [&out, choices = std::move(choices)](std::string_view text) -> base::Status {
    std::vector<std::string_view> names;
    for (const Choice<E>& choice : choices) {
      if (choice.name == text) {
        out = choice.value;
        return {};
      }
      names.push_back(choice.name);
    }
    return base::invalid_argument("not one of " + joined(names));
  };
}

}  // namespace spillway::sim
