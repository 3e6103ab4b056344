// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/switch_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "tools/cli/arguments.h"

namespace spillway::cli {
namespace {

void give(const char* key, const std::string& value, scenario::Directive& directive) {
  if (!value.empty()) {
    directive.values.push_back({key, value});
  }
}

std::string check_limit(const std::string& text) {
  const std::size_t at = text.find('=');
  const bool is_good = at != std::string::npos &&
                       whole_number(0, UINT16_MAX)(text.substr(0, at)).empty() &&
                       whole_number(1, SPILLWAY_SUM_MAX_SLOTS)(text.substr(at + 1)).empty();
  return is_good ? ""
                 : fmt::format(
                       "'{}' is not JOB=SLOTS, such as 7=1024, with a job from 0 to {} and "
                       "1 to {} slots",
                       text, UINT16_MAX, SPILLWAY_SUM_MAX_SLOTS);
}

// Converts "1=64" and "2=32" to the scenario's form: "1:64,2:32".
std::string limits_text(const std::vector<std::string>& limits) {
  std::string text;
  for (const std::string& limit : limits) {
    text += (text.empty() ? "" : ",") + limit;
  }
  std::ranges::replace(text, '=', ':');
  return text;
}

// "--slots, --job-limit": the options given.
std::string given_options(const SumOptions& options) {
  std::vector<std::string_view> names;
  for (const auto& [name, is_given] : {std::pair("--slots", !options.slots.empty()),
                                       std::pair("--policy", !options.policy.empty()),
                                       std::pair("--level", !options.level.empty()),
                                       std::pair("--job-limit", !options.limits.empty())}) {
    if (is_given) {
      names.emplace_back(name);
    }
  }
  return scenario::joined(names);
}

}  // namespace

void add_sum_options(CLI::App& command, SumOptions& options) {
  command
      .add_option("--slots", options.slots,
                  "Add sum packets up (algorithm `switch`), so many chunks at a time")
      ->check(whole_number(1, SPILLWAY_SUM_MAX_SLOTS));
  command
      .add_option("--policy", options.policy,
                  "Who gets a slot: preemptive (the more urgent takes it), first-come, or static")
      ->check(CLI::IsMember({"preemptive", "first-come", "static"}));
  command
      .add_option("--level", options.level,
                  "0: adds what ranks send, 1: what switches of level 0 have added")
      ->check(whole_number(0, SPILLWAY_SUM_LEVELS - 1));
  command
      .add_option("--job-limit", options.limits, "JOB=SLOTS: how many slots a job may hold at most")
      ->allow_extra_args(false)
      ->check(CLI::Validator([](const std::string& text) { return check_limit(text); }, ""));
}

void apply_sum_options(const SumOptions& options, scenario::Scenario& scenario) {
  scenario::Directive given{.noun = "aggregate", .place = "the command line", .values = {}};
  give("slots", options.slots, given);
  give("policy", options.policy, given);
  give("level", options.level, given);
  give("limits", limits_text(options.limits), given);
  if (given.values.empty()) {
    return;
  }
  if (scenario.aggregations.empty()) {
    scenario.aggregations.emplace_back();
  }
  for (scenario::Aggregation& line : scenario.aggregations) {
    if (!options.limits.empty()) {
      line.limits.clear();
    }
    check_option(given_options(options), scenario::read_aggregation(given, line));
  }
}

}  // namespace spillway::cli
