// SPDX-License-Identifier: Apache-2.0
//
// The syntax of a scenario file: one directive per line, `noun key=value ...`; `#` begins a
// comment. The first word behind the noun may stand without a key: `seed 7`, `topology leaf-spine
// rate=...`; its key is then kBareKey. A key occurs at most once in a line. scenario.h lists the
// nouns and their keys.
//
// Overrides have the shape `noun.key=value` and apply to every directive of that noun;
// `noun.2.key=value` applies to the second one only. `noun=value` sets the bare word. A missing
// noun is added.
//
// A KeyReader names a key that a directive may have and reads its value. The functions (to_bytes()
// and the others) keep references to their outputs, which must outlive the list of readers.
// read_values() reads a whole directive. For an unknown key or a bad value it names the line, the
// key and what is allowed; values read before that stay.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"

namespace spillway::scenario {

inline constexpr std::string_view kBareKey = "";

struct KeyValue {
  std::string key;
  std::string value;
};

struct Directive {
  std::string noun;
  std::string place;  // for messages: "line 3", "--set job.bytes=1"
  std::vector<KeyValue> values;
};

base::Result<std::vector<Directive>> parse_directives(std::string_view text);

base::Status apply_override(std::string_view text, std::vector<Directive>& directives);

using ValueReader = std::function<base::Status(std::string_view)>;

struct KeyReader {
  std::string_view key;
  ValueReader read;
};

base::Status read_values(const Directive& directive, const std::vector<KeyReader>& readers);

// "one, two, three"
std::string joined(const std::vector<std::string_view>& names);

ValueReader to_bytes(base::Bytes& out);
ValueReader to_rate(base::BitRate& out);
ValueReader to_duration(base::Duration& out);
ValueReader to_instant(base::Instant& out);  // as a duration since the start
ValueReader to_fraction(double& out);
ValueReader to_flag(bool& out);  // yes or no
ValueReader to_text(std::string& out);
ValueReader to_decimal(double& out);  // any finite number

base::Status not_in_range(std::string_view text, std::uint64_t least, std::uint64_t most);

// A whole number in [least, most].
template <std::unsigned_integral T>
ValueReader to_number(T& out, std::uint64_t least = 0,
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

// A size in bytes, stored in a plain integer.
template <std::unsigned_integral T>
ValueReader to_byte_count(T& out) {
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

// A fraction, stored as parts of `whole`.
template <std::unsigned_integral T>
ValueReader to_parts(T& out, std::uint32_t whole) {
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

// `T` may differ from the choices' type, such as an optional of it.
template <typename E, typename T>
ValueReader to_choice(T& out, std::vector<Choice<E>> choices) {
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

}  // namespace spillway::scenario
