// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/directives.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/text.h"

namespace spillway::scenario {
namespace {

constexpr std::string_view kSpace = " \t\r";

std::vector<std::string_view> words_of(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  for (;;) {
    const std::size_t begin = line.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) {
      return words;
    }
    line.remove_prefix(begin);
    const std::size_t end = std::min(line.find_first_of(kSpace), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

KeyValue key_value_of(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) {
    return {std::string(kBareKey), std::string(word)};
  }
  return {std::string(word.substr(0, equals)), std::string(word.substr(equals + 1))};
}

KeyValue* find_value(Directive& directive, std::string_view key) {
  const auto found = std::find_if(directive.values.begin(), directive.values.end(),
                                  [key](const KeyValue& given) { return given.key == key; });
  return found == directive.values.end() ? nullptr : &*found;
}

base::Status add_value(std::string_view word, bool may_be_bare, Directive& directive) {
  KeyValue given = key_value_of(word);
  const bool is_bare = word.find('=') == std::string_view::npos;
  if ((is_bare && !may_be_bare) || (!is_bare && given.key.empty())) {
    return base::invalid_argument(fmt::format("{}: '{}' is not key=value", directive.place, word));
  }
  if (given.value.empty()) {
    return base::invalid_argument(fmt::format("{}: '{}' has no value", directive.place, word));
  }
  if (find_value(directive, given.key) != nullptr) {
    return base::invalid_argument(
        fmt::format("{}: '{}' is given twice", directive.place, given.key));
  }
  directive.values.push_back(std::move(given));
  return {};
}

base::Status parse_line(const std::vector<std::string_view>& words, std::size_t number,
                        std::vector<Directive>& directives) {
  Directive directive{std::string(words.front()), fmt::format("line {}", number), {}};
  if (directive.noun.find('=') != std::string::npos) {
    return base::invalid_argument(fmt::format("{}: a line begins with a noun, not with '{}'",
                                              directive.place, directive.noun));
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (base::Status status = add_value(words[i], i == 1, directive); !status.ok()) {
      return status;
    }
  }
  directives.push_back(std::move(directive));
  return {};
}

// ------------------------------------------------------------------ overrides

struct Override {
  std::string noun;
  std::optional<std::size_t> number;  // from 1
  KeyValue given;
};

base::Result<Override> parse_override(std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  if (equals == std::string_view::npos || name.empty() || equals + 1 == text.size()) {
    return base::invalid_argument(
        fmt::format("'{}' is not noun.key=value, such as job.protocol=dctcp", text));
  }
  Override parsed;
  parsed.given.value = text.substr(equals + 1);
  const std::size_t dot = name.find('.');
  parsed.noun = name.substr(0, dot);
  std::string_view rest = dot == std::string_view::npos ? kBareKey : name.substr(dot + 1);
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error == std::errc() && (end == rest.data() + rest.size() || *end == '.')) {
    parsed.number = number;
    rest.remove_prefix(std::min<std::size_t>(end - rest.data() + 1, rest.size()));
  }
  parsed.given.key = rest;
  return parsed;
}

void set(const KeyValue& given, std::string_view place, Directive& directive) {
  directive.place = fmt::format("{} with {}", directive.place, place);
  if (KeyValue* there = find_value(directive, given.key)) {
    there->value = given.value;
  } else {
    directive.values.push_back(given);
  }
}

// ------------------------------------------------------------------ values

template <typename T>
ValueReader to_parsed(base::Result<T> (*parse)(std::string_view), T& out) {
  return [parse, &out](std::string_view text) -> base::Status {
    const base::Result<T> parsed = parse(text);
    if (!parsed.ok()) {
      return parsed.status();
    }
    out = *parsed;
    return {};
  };
}

base::Status unknown_key(const Directive& directive, const KeyValue& given,
                         const std::vector<KeyReader>& readers) {
  std::vector<std::string_view> known;
  for (const KeyReader& reader : readers) {
    if (reader.key != kBareKey) {
      known.push_back(reader.key);
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

base::Result<std::vector<Directive>> parse_directives(std::string_view text) {
  std::vector<Directive> directives;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::vector<std::string_view> words = words_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty()) {
      continue;
    }
    if (base::Status status = parse_line(words, number, directives); !status.ok()) {
      return status;
    }
  }
  return directives;
}

base::Status apply_override(std::string_view text, std::vector<Directive>& directives) {
  const base::Result<Override> parsed = parse_override(text);
  if (!parsed.ok()) {
    return parsed.status();
  }
  std::size_t seen = 0;
  for (Directive& directive : directives) {
    if (directive.noun == parsed->noun && (++seen == parsed->number || !parsed->number)) {
      set(parsed->given, text, directive);
    }
  }
  if (parsed->number && (*parsed->number == 0 || *parsed->number > seen)) {
    return base::invalid_argument(
        fmt::format("{}: the scenario has {} '{}', counted from 1", text, seen, parsed->noun));
  }
  if (seen == 0) {
    directives.push_back({parsed->noun, std::string(text), {parsed->given}});
  }
  return {};
}

base::Status read_values(const Directive& directive, const std::vector<KeyReader>& readers) {
  for (const KeyValue& given : directive.values) {
    const auto known =
        std::find_if(readers.begin(), readers.end(),
                     [&given](const KeyReader& reader) { return reader.key == given.key; });
    if (known == readers.end()) {
      return unknown_key(directive, given, readers);
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

ValueReader to_bytes(base::Bytes& out) {
  return to_parsed(base::parse_bytes, out);
}

ValueReader to_rate(base::BitRate& out) {
  return to_parsed(base::parse_rate, out);
}

ValueReader to_duration(base::Duration& out) {
  return to_parsed(base::parse_duration, out);
}

ValueReader to_fraction(double& out) {
  return to_parsed(base::parse_fraction, out);
}

ValueReader to_instant(base::Instant& out) {
  return [&out](std::string_view text) -> base::Status {
    base::Duration since_start;
    if (base::Status status = to_duration(since_start)(text); !status.ok()) {
      return status;
    }
    out = base::Instant(since_start);
    return {};
  };
}

ValueReader to_flag(bool& out) {
  return to_choice<bool>(out, {{"yes", true}, {"no", false}});
}

ValueReader to_text(std::string& out) {
  return [&out](std::string_view text) -> base::Status {
    out = text;
    return {};
  };
}

ValueReader to_decimal(double& out) {
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

}  // namespace spillway::scenario
