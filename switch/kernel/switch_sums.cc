// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/switch_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace spillway::kernel {
namespace {

base::Result<spillway_sum_job> fix_job(const scenario::JobSlots& limit,
                                       spillway_sum_directory& directory) {
  const std::uint32_t name = spillway_sum_name(limit.job);
  const std::uint32_t row = spillway_find_row(&directory, name, 0, 0);
  if (row == SPILLWAY_SUM_NO_JOB) {
    return base::invalid_argument(
        fmt::format("a limit for job {}: too many jobs have one", limit.job));
  }
  directory.seen_s[row] = SPILLWAY_SUM_JOB_FIXED;
  spillway_sum_job job = {};
  spillway_open_job(&job, row, name);
  job.limit = limit.slots;
  return job;
}

}  // namespace

base::Status set_up_sums(const scenario::Adder& adder, SwitchMaps& maps) {
  base::Status status = maps.write_sum_settings(adder.config);
  spillway_sum_directory directory = {};
  for (std::size_t i = 0; i < adder.limits.size() && status.ok(); ++i) {
    const base::Result<spillway_sum_job> job = fix_job(adder.limits[i], directory);
    status = job.ok() ? maps.write_sum_job(*job) : job.status();
  }
  return status.ok() ? maps.write_sum_directory(directory) : status;
}

sim::AdderTotals adder_totals(const SwitchMaps& maps, const spillway_sum_config& config) {
  sim::AdderTotals totals;
  totals.config = config;
  totals.counters = maps.sum_counters();
  if (const std::optional<spillway_port_label> label = maps.label(0)) {
    const std::string_view port = label->name;
    totals.name = port.substr(0, port.find("->"));
  }
  const spillway_sum_directory directory = maps.sum_directory();
  for (std::uint32_t row = 0; row < SPILLWAY_SUM_JOBS; ++row) {
    const std::uint32_t name = directory.names[row];
    if (name == 0) {
      continue;
    }
    const spillway_sum_job job = maps.sum_job(row);
    totals.jobs.push_back({.job = static_cast<std::uint16_t>(name - 1),
                           .held = job.held,
                           .limit = job.limit,
                           .counters = maps.sum_counters(row, name)});
    totals.held += job.held;
  }
  std::ranges::sort(totals.jobs, {}, &sim::SumJobTotals::job);
  return totals;
}

}  // namespace spillway::kernel
