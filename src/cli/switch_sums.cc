// SPDX-License-Identifier: Apache-2.0
#include "cli/switch_sums.h"

#include <algorithm>

#include "cli/commands.h"

namespace spillway::cli {
namespace {

void give(const char* key, const std::string& value, scenario::Directive& directive) {
  if (!value.empty()) {
    directive.values.push_back({key, value});
  }
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

}  // namespace

void add_sum_options(CLI::App& command, SumOptions& options) {
  command.add_option("--slots", options.slots,
                     "Add sum packets up (algorithm `switch`), so many chunks at a time");
  command
      .add_option("--policy", options.policy,
                  "Who gets a slot: preemptive (the more urgent takes it), first-come, or static")
      ->check(CLI::IsMember({"preemptive", "first-come", "static"}));
  command.add_option("--level", options.level,
                     "0: adds what ranks send, 1: what switches of level 0 have added");
  command
      .add_option("--job-limit", options.limits, "JOB=SLOTS: how many slots a job may hold at most")
      ->allow_extra_args(false);
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
    throw_unless_ok(scenario::read_aggregation(given, line));
  }
}

}  // namespace spillway::cli
