// SPDX-License-Identifier: Apache-2.0
#include "base/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <numeric>

// POSIX declares it in <unistd.h>, which the core must not include.
extern char** environ;

namespace spillway::base {
namespace {

constexpr std::string_view kPrefix = "SPILLWAY_";
constexpr std::int64_t kMaxPort = 65'535;

char upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return upper(x) == upper(y); });
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos
             ? ""
             : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::vector<std::string_view> list_of(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    parts.push_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

// Parses the whole of `text` as a number; empty if it is none, or NaN.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && number == number ? std::optional(number)
                                                                 : std::nullopt;
}

template <typename T>
bool is_number_within(std::string_view text, T least, T most) {
  const std::optional<T> number = parse_number<T>(text);
  return number && *number >= least && *number <= most;
}

// ------------------------------------------------------------------ kinds

// The choice in the table's spelling; empty if there is none.
std::string_view choice_named(std::string_view choices, std::string_view text) {
  for (const std::string_view choice : list_of(choices)) {
    if (same_word(choice, text)) {
      return choice;
    }
  }
  return "";
}

bool are_choices(std::string_view choices, std::string_view text) {
  text.remove_prefix(text.starts_with('^') ? 1 : 0);
  const std::vector<std::string_view> words = list_of(text);
  return !words.empty() && std::all_of(words.begin(), words.end(), [&](std::string_view word) {
    return !choice_named(choices, word).empty();
  });
}

struct HostAndPort {
  std::string_view host;  // without brackets
  bool has_brackets = false;
  std::int64_t port = 0;
};

std::optional<HostAndPort> split_place(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return std::nullopt;
  }
  HostAndPort split{.host = text.substr(0, colon)};
  const std::optional<std::int64_t> port = parse_number<std::int64_t>(text.substr(colon + 1));
  if (!port || *port < 0 || *port > kMaxPort) {
    return std::nullopt;
  }
  split.port = *port;
  if (split.host.size() > 2 && split.host.front() == '[' && split.host.back() == ']') {
    split.has_brackets = true;
    split.host = split.host.substr(1, split.host.size() - 2);
  }
  return split;
}

bool is_place(std::string_view text) {
  const std::optional<HostAndPort> place = split_place(text);
  return place && place->port > 0 &&
         (place->has_brackets || place->host.find(':') == std::string_view::npos);
}

// Checks only the characters, not the address.
bool is_address(std::string_view text) {
  const std::optional<HostAndPort> place = split_place(text);
  const std::string_view characters =
      place && place->has_brackets ? "0123456789abcdefABCDEF:." : "0123456789.";
  return place && place->host.find_first_not_of(characters) == std::string_view::npos;
}

bool is_listen(std::string_view text) {
  return is_address(text) || is_number_within<std::int64_t>(text, 1, kMaxPort);
}

bool are_addresses(std::string_view text) {
  const std::vector<std::string_view> parts = list_of(text);
  return std::all_of(parts.begin(), parts.end(), is_address);
}

// True for kinds whose values may have space around them.
bool is_word(VariableKind kind) {
  switch (kind) {
    case VariableKind::kNumber:
    case VariableKind::kSeconds:
    case VariableKind::kShare:
    case VariableKind::kFlag:
    case VariableKind::kChoice:
    case VariableKind::kChoices:
    case VariableKind::kListen:
      return true;
    default:
      return false;
  }
}

bool is_allowed(const Variable& variable, std::string_view text) {
  constexpr double kMillisecond = 1e-3;
  switch (variable.kind) {
    case VariableKind::kNumber:
      return is_number_within(text, variable.least, variable.most);
    case VariableKind::kSeconds:
      return is_number_within(text, static_cast<double>(variable.least) * kMillisecond,
                              static_cast<double>(variable.most) * kMillisecond);
    case VariableKind::kShare:
      return is_number_within(text, 0.0, 1.0);
    case VariableKind::kFlag:
      return text == "0" || text == "1";
    case VariableKind::kChoice:
      return !choice_named(variable.choices, text).empty();
    case VariableKind::kChoices:
      return are_choices(variable.choices, text);
    case VariableKind::kPlace:
      return is_place(text);
    case VariableKind::kAddress:
      return is_address(text);
    case VariableKind::kListen:
      return is_listen(text);
    case VariableKind::kAddresses:
      return are_addresses(text);
    case VariableKind::kSecret:
      return static_cast<std::int64_t>(text.size()) >= variable.least;
    case VariableKind::kText:
    case VariableKind::kPath:
      return true;
  }
  return false;
}

std::string_view as_in_table(const Variable& variable, std::string_view text) {
  return variable.kind == VariableKind::kChoice ? choice_named(variable.choices, text) : text;
}

// ------------------------------------------------------------------ sentences

std::string range_text(std::int64_t least, std::int64_t most) {
  return most == internal::kNoLimit ? fmt::format("a whole number, {} or more", least)
                                    : fmt::format("a whole number from {} to {}", least, most);
}

// For example "exact or tolerant".
std::string alternatives(std::string_view choices) {
  const std::vector<std::string_view> words = list_of(choices);
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += i == 0 ? "" : i + 1 < words.size() ? ", " : " or ";
    text += words[i];
  }
  return text;
}

Status refused(std::string_view name, std::string_view value, std::string_view allowed) {
  return invalid_argument(fmt::format("{} is '{}': it must be {}", name, value, allowed));
}

// The edit distance: single-character changes that turn one word into the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string allowed_values(const Variable& variable) {
  switch (variable.kind) {
    case VariableKind::kNumber:
      return range_text(variable.least, variable.most);
    case VariableKind::kSeconds:
      return fmt::format("a number of seconds from {} to {}, such as 5 or 0.5",
                         static_cast<double>(variable.least) / 1000,
                         static_cast<double>(variable.most) / 1000);
    case VariableKind::kShare:
      return "a share from 0 to 1, such as 0.01";
    case VariableKind::kFlag:
      return "0 or 1";
    case VariableKind::kChoice:
      return alternatives(variable.choices);
    case VariableKind::kChoices:
      return fmt::format("a list of {}, with ^ in front for all but these",
                         alternatives(variable.choices));
    case VariableKind::kPlace:
      return "a host and a port, such as 10.0.0.1:29517";
    case VariableKind::kAddress:
      return "an address and a port, such as 10.0.0.1:7077 or [fd00::1]:7077";
    case VariableKind::kListen:
      return "a port, or an address and a port, such as 9400, 10.0.0.1:9400 or [fd00::1]:9400";
    case VariableKind::kAddresses:
      return "addresses with ports, such as 10.0.0.1:7077,10.0.0.2:7077";
    case VariableKind::kSecret:
      return fmt::format("at least {} bytes", variable.least);
    case VariableKind::kText:
      return "text";
    case VariableKind::kPath:
      return "a path";
  }
  return "";
}

Status refusal(const Variable& variable, std::string_view value) {
  const bool is_secret = variable.kind == VariableKind::kSecret;
  return refused(variable.name, is_secret ? "..." : value, allowed_values(variable));
}

Result<VariableValue> value_of(const Environment& environment, const Variable& variable) {
  const std::string raw = environment.get_or(variable.name, "");
  const std::string_view text = is_word(variable.kind) ? trimmed(raw) : raw;
  if (text.empty()) {
    return VariableValue{.text = std::string(variable.otherwise), .is_set = false};
  }
  if (!is_allowed(variable, text)) {
    return refusal(variable, text);
  }
  return VariableValue{.text = std::string(as_in_table(variable, text)), .is_set = true};
}

Status check(const Environment& environment) {
  std::string sentences;
  const auto add_error = [&](const Variable& variable) {
    const Result<VariableValue> value = value_of(environment, variable);
    if (!value.ok()) {
      sentences += (sentences.empty() ? "" : "; ") + value.status().message();
    }
  };
  std::for_each(kVariables.begin(), kVariables.end(), add_error);
  std::for_each(kPrivateVariables.begin(), kPrivateVariables.end(), add_error);
  return sentences.empty() ? Status() : invalid_argument(sentences);
}

std::string_view nearest_variable(std::string_view name) {
  return std::min_element(kVariables.begin(), kVariables.end(),
                          [name](const Variable& a, const Variable& b) {
                            return distance(a.name, name) < distance(b.name, name);
                          })
      ->name;
}

std::vector<UnknownVariable> unknown_variables(const Environment& environment) {
  std::vector<UnknownVariable> unknown;
  for (const std::string& name : environment.names_with_prefix(kPrefix)) {
    if (find_variable(name) == nullptr) {
      unknown.push_back({name, nearest_variable(name)});
    }
  }
  return unknown;
}

void warn_of_unknown_variables(const Environment& environment,
                               const std::function<void(const std::string&)>& warn) {
  static std::atomic_flag has_warned;
  if (has_warned.test_and_set()) {
    return;
  }
  for (const auto& [name, nearest] : unknown_variables(environment)) {
    warn(fmt::format("{} is set, but nothing reads it; the nearest name is {}", name, nearest));
  }
}

// ------------------------------------------------------------------ Environment

Environment Environment::of_process() {
  Environment environment;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) {
      environment.variables_.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return environment;
}

std::optional<std::string> Environment::get(std::string_view name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end() || found->second.empty()) {
    return std::nullopt;
  }
  return found->second;
}

std::string Environment::get_or(std::string_view name, std::string_view otherwise) const {
  return get(name).value_or(std::string(otherwise));
}

std::vector<std::string> Environment::names_with_prefix(std::string_view prefix) const {
  std::vector<std::string> names;
  for (auto at = variables_.lower_bound(prefix);
       at != variables_.end() && at->first.starts_with(prefix); ++at) {
    if (!at->second.empty()) {
      names.push_back(at->first);
    }
  }
  return names;
}

Result<std::int64_t> Environment::number(Number name) const {
  const Result<VariableValue> value = value_of(*this, name.variable);
  if (!value.ok()) {
    return value.status();
  }
  return parse_number<std::int64_t>(value->text).value();
}

Result<std::optional<std::int64_t>> Environment::optional_number(OptionalNumber name) const {
  const Result<VariableValue> value = value_of(*this, name.variable);
  if (!value.ok()) {
    return value.status();
  }
  return parse_number<std::int64_t>(value->text);
}

Result<Duration> Environment::seconds(Seconds name) const {
  constexpr double kNanosecondsPerSecond = 1e9;
  const Result<VariableValue> value = value_of(*this, name.variable);
  if (!value.ok()) {
    return value.status();
  }
  return nanoseconds(
      std::llround(parse_number<double>(value->text).value() * kNanosecondsPerSecond));
}

Result<bool> Environment::flag(Flag name) const {
  const Result<VariableValue> value = value_of(*this, name.variable);
  if (!value.ok()) {
    return value.status();
  }
  return value->text == "1";
}

std::string Environment::text(Text name) const {
  return get_or(name.variable.name, name.variable.otherwise);
}

Result<std::string> Environment::checked_text(Checked name) const {
  Result<VariableValue> value = value_of(*this, name.variable);
  if (!value.ok()) {
    return value.status();
  }
  return std::move(value).value().text;
}

Result<std::uint32_t> Environment::number_of(std::string_view name,
                                             const NumberRange& range) const {
  const std::optional<std::string> text = get(name);
  if (!text) {
    return invalid_argument(fmt::format("{} is not set", name));
  }
  const std::optional<std::uint32_t> number = parse_number<std::uint32_t>(trimmed(*text));
  if (!number || *number < range.least || *number > range.most) {
    return refused(name, *text, range_text(range.least, range.most));
  }
  return *number;
}

}  // namespace spillway::base
