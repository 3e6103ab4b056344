// SPDX-License-Identifier: Apache-2.0
#include "runtime/node_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace spillway::runtime {
namespace {

using Names = std::vector<std::string>;

// Wider numbers are no node's, and would not fit what they are read into.
constexpr std::size_t kMostDigits = 9;

base::Status malformed(std::string_view list) {
  return base::invalid_argument(
      fmt::format("'{}' is not a list of nodes such as gnode[10,20-25],login1", list));
}

base::Status too_many(std::string_view list) {
  return {base::StatusCode::kLimitExceeded,
          fmt::format("the list of nodes '{}' names more than {}", list, kMostNodes)};
}

bool parse_number(std::string_view text, std::uint32_t& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && text.size() <= kMostDigits;
}

// What stands before the next comma outside of brackets; takes it and the comma away.
std::string_view take_item(std::string_view& list) {
  int depth = 0;
  std::size_t end = 0;
  for (; end < list.size() && (depth > 0 || list[end] != ','); ++end) {
    depth += list[end] == '[' ? 1 : 0;
    depth -= list[end] == ']' ? 1 : 0;
  }
  const std::string_view item = list.substr(0, end);
  list.remove_prefix(std::min(end + 1, list.size()));
  return item;
}

// "20-25" or "037"; false when it is neither or there would be too many.
bool append_range(std::string_view range, Names& numbers) {
  const std::size_t dash = std::min(range.find('-'), range.size());
  const std::string_view first_text = range.substr(0, dash);
  const std::string_view last_text = dash < range.size() ? range.substr(dash + 1) : first_text;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  if (!parse_number(first_text, first) || !parse_number(last_text, last) || last < first ||
      last - first >= kMostNodes) {
    return false;
  }
  for (std::uint32_t number = first; number <= last; ++number) {
    numbers.push_back(fmt::format("{:0{}}", number, first_text.size()));
  }
  return numbers.size() <= kMostNodes;
}

// The inside of a bracket: "10,20-25,037".
bool parse_bracket(std::string_view inside, Names& numbers) {
  do {
    const std::size_t comma = std::min(inside.find(','), inside.size());
    if (!append_range(inside.substr(0, comma), numbers)) {
      return false;
    }
    inside.remove_prefix(std::min(comma + 1, inside.size()));
  } while (!inside.empty());
  return true;
}

// Every name with every ending.
Names joined(const Names& names, const Names& endings) {
  Names longer;
  longer.reserve(names.size() * endings.size());
  for (const std::string& name : names) {
    for (const std::string& ending : endings) {
      longer.push_back(name + ending);
    }
  }
  return longer;
}

// One item of the list, "rack[1-2]n[01-04]". `whole` is for messages.
base::Result<Names> expand_item(std::string_view item, std::string_view whole) {
  if (item.empty()) {
    return malformed(whole);
  }
  Names names = {""};
  while (!item.empty()) {
    const std::size_t open = std::min(item.find('['), item.size());
    names = joined(names, {std::string(item.substr(0, open))});
    item.remove_prefix(open);
    if (item.empty()) {
      break;
    }
    const std::size_t close = item.find(']');
    Names numbers;
    if (close == std::string_view::npos || !parse_bracket(item.substr(1, close - 1), numbers)) {
      return malformed(whole);
    }
    if (names.size() * numbers.size() > kMostNodes) {
      return too_many(whole);
    }
    names = joined(names, numbers);
    item.remove_prefix(close + 1);
  }
  return names;
}

bool only_name_characters(std::string_view list) {
  return std::all_of(list.begin(), list.end(), [](unsigned char c) { return c > ' ' && c < 127; });
}

}  // namespace

base::Result<Names> expand_node_list(std::string_view list) {
  const std::string_view whole = list;
  if (list.empty() || list.back() == ',' || !only_name_characters(list)) {
    return malformed(whole);
  }
  Names names;
  while (!list.empty()) {
    base::Result<Names> item = expand_item(take_item(list), whole);
    if (!item.ok()) {
      return item.status();
    }
    if (names.size() + item->size() > kMostNodes) {
      return too_many(whole);
    }
    names.insert(names.end(), item->begin(), item->end());
  }
  if (std::any_of(names.begin(), names.end(), [](const std::string& name) {
        return name.find_first_of("[]") != std::string::npos;
      })) {
    return malformed(whole);
  }
  return names;
}

base::Result<std::vector<std::uint32_t>> expand_task_counts(std::string_view list) {
  const base::Status wrong = base::invalid_argument(
      fmt::format("'{}' is not a list of tasks per node such as 2(x3),1", list));
  std::vector<std::uint32_t> counts;
  do {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view item = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    std::uint32_t times = 1;
    const std::size_t open = item.find("(x");
    if (open != std::string_view::npos) {
      if (item.back() != ')' ||
          !parse_number(item.substr(open + 2, item.size() - open - 3), times)) {
        return wrong;
      }
      item = item.substr(0, open);
    }
    std::uint32_t tasks = 0;
    if (!parse_number(item, tasks) || times + counts.size() > kMostNodes) {
      return wrong;
    }
    counts.insert(counts.end(), times, tasks);
  } while (!list.empty());
  return counts;
}

}  // namespace spillway::runtime
