// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace spillway::sim {
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

TextSetting setting_of(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) {
    return {std::string(kBareKey), std::string(word)};
  }
  return {std::string(word.substr(0, equals)), std::string(word.substr(equals + 1))};
}

TextSetting* find_setting(Directive& directive, std::string_view key) {
  const auto found = std::find_if(directive.settings.begin(), directive.settings.end(),
                                  [key](const TextSetting& setting) { return setting.key == key; });
  return found == directive.settings.end() ? nullptr : &*found;
}

base::Status add_setting(std::string_view word, bool may_be_bare, Directive& directive) {
  TextSetting setting = setting_of(word);
  const bool is_bare = word.find('=') == std::string_view::npos;
  if ((is_bare && !may_be_bare) || (!is_bare && setting.key.empty())) {
    return base::invalid_argument(fmt::format("{}: '{}' is not key=value", directive.place, word));
  }
  if (setting.value.empty()) {
    return base::invalid_argument(fmt::format("{}: '{}' has no value", directive.place, word));
  }
  if (find_setting(directive, setting.key) != nullptr) {
    return base::invalid_argument(
        fmt::format("{}: '{}' is given twice", directive.place, setting.key));
  }
  directive.settings.push_back(std::move(setting));
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
    if (base::Status status = add_setting(words[i], i == 1, directive); !status.ok()) {
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
  TextSetting setting;
};

base::Result<Override> parse_override(std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  if (equals == std::string_view::npos || name.empty() || equals + 1 == text.size()) {
    return base::invalid_argument(
        fmt::format("'{}' is not noun.key=value, such as job.protocol=dctcp", text));
  }
  Override parsed;
  parsed.setting.value = text.substr(equals + 1);
  const std::size_t dot = name.find('.');
  parsed.noun = name.substr(0, dot);
  std::string_view rest = dot == std::string_view::npos ? kBareKey : name.substr(dot + 1);
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error == std::errc() && (end == rest.data() + rest.size() || *end == '.')) {
    parsed.number = number;
    rest.remove_prefix(std::min<std::size_t>(end - rest.data() + 1, rest.size()));
  }
  parsed.setting.key = rest;
  return parsed;
}

void set(const TextSetting& setting, std::string_view place, Directive& directive) {
  directive.place = fmt::format("{} with {}", directive.place, place);
  if (TextSetting* there = find_setting(directive, setting.key)) {
    there->value = setting.value;
  } else {
    directive.settings.push_back(setting);
  }
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
      set(parsed->setting, text, directive);
    }
  }
  if (parsed->number && (*parsed->number == 0 || *parsed->number > seen)) {
    return base::invalid_argument(
        fmt::format("{}: the scenario has {} '{}', counted from 1", text, seen, parsed->noun));
  }
  if (seen == 0) {
    directives.push_back({parsed->noun, std::string(text), {parsed->setting}});
  }
  return {};
}

}  // namespace spillway::sim
