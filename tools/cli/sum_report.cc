// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sum_report.h"

#include <fmt/format.h>

#include <iterator>

#include "sim/scenario/aggregation.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

json counters_json(const spillway_sum_counters& counters) {
  json out = {{"lost_slots", counters.lost_slots},
              {"copies", counters.copies},
              {"unknown_recipients", counters.unknown}};
  for (std::size_t i = 0; i < SPILLWAY_SUM_OUTCOMES; ++i) {
    out[std::string(sim::sum_outcome_name(i))] = counters.outcomes[i];
  }
  return out;
}

json job_json(const sim::SumJobTotals& job) {
  return {{"job", job.job},
          {"held", job.held},
          {"limit", job.limit},
          {"packets", counters_json(job.counters)}};
}

json adder_json(const sim::AdderTotals& adder) {
  json jobs = json::array();
  for (const sim::SumJobTotals& job : adder.jobs) {
    jobs.push_back(job_json(job));
  }
  return {{"switch", adder.name},
          {"slots", adder.config.slots},
          {"policy", scenario::policy_name(adder.config.policy)},
          {"level", adder.config.level},
          {"held", adder.held},
          {"packets", counters_json(adder.counters)},
          {"jobs", jobs}};
}

// Packets that were forwarded without asking for a slot.
std::uint64_t passed(const spillway_sum_counters& counters) {
  std::uint64_t sum = 0;
  for (unsigned i = SPILLWAY_SUM_PAST_ALONE; i < SPILLWAY_SUM_OUTCOMES; ++i) {
    sum += counters.outcomes[i];
  }
  return sum;
}

}  // namespace

json adders_json(const std::vector<sim::AdderTotals>& adders) {
  json out = json::array();
  for (const sim::AdderTotals& adder : adders) {
    out.push_back(adder_json(adder));
  }
  return out;
}

TextTable adders_table(const std::vector<sim::AdderTotals>& adders) {
  TextTable table({"adds", "job", "held", "claimed", "added", "whole", "repeated", "collided",
                   "evicted", "flushed", "not held", "passed", "copies"});
  for (const sim::AdderTotals& adder : adders) {
    for (const sim::SumJobTotals& job : adder.jobs) {
      const auto count = [&job](spillway_sum_outcome outcome) {
        return std::to_string(job.counters.outcomes[outcome]);
      };
      table.add_row({adder.name, std::to_string(job.job), std::to_string(job.held),
                     count(SPILLWAY_SUM_DID_CLAIM), count(SPILLWAY_SUM_DID_ADD),
                     count(SPILLWAY_SUM_DID_EMIT), count(SPILLWAY_SUM_DID_DUPLICATE),
                     count(SPILLWAY_SUM_DID_COLLISION), std::to_string(job.counters.lost_slots),
                     count(SPILLWAY_SUM_DID_FLUSH), count(SPILLWAY_SUM_DID_NOT_HELD),
                     std::to_string(passed(job.counters)), std::to_string(job.counters.copies)});
    }
  }
  return table;
}

std::string adders_metrics(const std::vector<sim::AdderTotals>& adders) {
  std::string text;
  if (adders.empty()) {
    return text;
  }
  const auto out = std::back_inserter(text);
  const auto type = [&out](const char* name, const char* kind, const char* help) {
    fmt::format_to(out, "# HELP {0} {2}\n# TYPE {0} {1}\n", name, kind, help);
  };
  // Prints a line per switch and job, with `value` of the job.
  const auto lines = [&](const char* name, const std::string& label, const auto& value) {
    for (const sim::AdderTotals& adder : adders) {
      for (const sim::SumJobTotals& job : adder.jobs) {
        fmt::format_to(out, "{}{{switch=\"{}\",job=\"{}\"{}}} {}\n", name, adder.name, job.job,
                       label, value(job));
      }
    }
  };
  type("spillway_switch_sums_total", "counter", "Sum packets by what became of them.");
  for (std::size_t i = 0; i < SPILLWAY_SUM_OUTCOMES; ++i) {
    lines("spillway_switch_sums_total", fmt::format(",outcome=\"{}\"", sim::sum_outcome_name(i)),
          [i](const sim::SumJobTotals& job) { return job.counters.outcomes[i]; });
  }
  type("spillway_switch_sums_lost_slots_total", "counter", "Slots that other jobs or chunks took.");
  lines("spillway_switch_sums_lost_slots_total", "",
        [](const sim::SumJobTotals& job) { return job.counters.lost_slots; });
  type("spillway_switch_sums_copies_total", "counter", "Copies of results.");
  lines("spillway_switch_sums_copies_total", "",
        [](const sim::SumJobTotals& job) { return job.counters.copies; });
  type("spillway_switch_sums_held", "gauge", "Slots that wait for parts.");
  lines("spillway_switch_sums_held", "", [](const sim::SumJobTotals& job) { return job.held; });
  type("spillway_switch_sums_slots", "gauge", "Slots there are.");
  for (const sim::AdderTotals& adder : adders) {
    fmt::format_to(out, "spillway_switch_sums_slots{{switch=\"{}\"}} {}\n", adder.name,
                   adder.config.slots);
  }
  return text;
}

}  // namespace spillway::cli
