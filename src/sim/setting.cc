// SPDX-License-Identifier: Apache-2.0
#include "sim/setting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/units_text.h"

namespace spillway::sim {
namespace {

template <typename T>
SettingReader to_parsed(base::Result<T> (*parse)(std::string_view), T& out) {
  return [parse, &out](std::string_view text) -> base::Status {
    const base::Result<T> parsed = parse(text);
    if (!parsed.ok()) {
      return parsed.status();
    }
    out = *parsed;
    return {};
  };
}

base::Status unknown_key(const Directive& directive, const TextSetting& given,
                         const std::vector<Setting>& settings) {
  std::vector<std::string_view> known;
  for (const Setting& setting : settings) {
    if (setting.key != kBareKey) {
      known.push_back(setting.key);
    }
  }
  std::sort(known.begin(), known.end());
  if (given.key == kBareKey) {
    return base::invalid_argument(fmt::format("{}: '{}' is not key=value; {} knows {}",
                                              directive.place, given.value, directive.noun,
                                              joined(known)));
  }
  return base::invalid_argument(fmt::format("{}: {} has no key '{}'; it knows {}", directive.place,
                                            directive.noun, given.key, joined(known)));
}

}  // namespace

base::Status apply_settings(const Directive& directive, const std::vector<Setting>& settings) {
  for (const TextSetting& given : directive.settings) {
    const auto known = std::find_if(settings.begin(), settings.end(),
                                    [&given](const Setting& s) { return s.key == given.key; });
    if (known == settings.end()) {
      return unknown_key(directive, given, settings);
    }
    if (const base::Status status = known->read(given.value); !status.ok()) {
      const std::string_view between = given.key == kBareKey ? "" : "=";
      return base::invalid_argument(fmt::format("{}: {} {}{}{}: {}", directive.place,
                                                directive.noun, given.key, between, given.value,
                                                status.message()));
    }
  }
  return {};
}

std::string joined(const std::vector<std::string_view>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

base::Status not_in_range(std::string_view text, std::uint64_t least, std::uint64_t most) {
  return base::invalid_argument(
      fmt::format("'{}' is not a whole number from {} to {}", text, least, most));
}

SettingReader to_bytes(base::Bytes& out) {
  return to_parsed(parse_bytes, out);
}

SettingReader to_rate(base::BitRate& out) {
  return to_parsed(parse_rate, out);
}

SettingReader to_duration(base::Duration& out) {
  return to_parsed(parse_duration, out);
}

SettingReader to_fraction(double& out) {
  return to_parsed(parse_fraction, out);
}

SettingReader to_instant(base::Instant& out) {
  return [&out](std::string_view text) -> base::Status {
    base::Duration since_start;
    if (base::Status status = to_duration(since_start)(text); !status.ok()) {
      return status;
    }
    out = base::Instant(since_start);
    return {};
  };
}

SettingReader to_flag(bool& out) {
  return to_choice<bool>(out, {{"yes", true}, {"no", false}});
}

SettingReader to_text(std::string& out) {
  return [&out](std::string_view text) -> base::Status {
    out = text;
    return {};
  };
}

SettingReader to_decimal(double& out) {
  return [&out](std::string_view text) -> base::Status {
    double value = 0.0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || !std::isfinite(value)) {
      return base::invalid_argument(fmt::format("'{}' is not a number", text));
    }
    out = value;
    return {};
  };
}

}  // namespace spillway::sim
