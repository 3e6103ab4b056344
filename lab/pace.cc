// SPDX-License-Identifier: Apache-2.0
#include "lab/pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace spillway::lab {
namespace {

constexpr std::int64_t kDelaysPerLate = 10;

// Every path between two hosts crosses their two links.
base::Duration shortest_way(const scenario::Topology& topology) {
  std::vector<base::Duration> delays;
  for (const scenario::Link& link : topology.links) {
    if (std::min(link.a, link.b) < topology.hosts()) {
      delays.push_back(link.delay);
    }
  }
  std::ranges::sort(delays);
  return delays.size() < 2 ? base::Duration() : delays[0] + delays[1];
}

}  // namespace

ProcessorTimes parse_processor_times(std::string_view proc_stat) {
  constexpr int kStolen = 7;  // user, nice, system, idle, iowait, irq, softirq, steal; see proc(5)
  std::istringstream words{std::string(proc_stat.substr(0, proc_stat.find('\n')))};
  std::string name;
  words >> name;
  ProcessorTimes times;
  std::uint64_t ticks = 0;
  for (int field = 0; field <= kStolen && words >> ticks; ++field) {
    times.all += ticks;
    times.stolen = field == kStolen ? ticks : 0;
  }
  return name == "cpu" ? times : ProcessorTimes();
}

ProcessorTimes read_processor_times() {
  std::string line;
  std::ifstream file("/proc/stat");
  std::getline(file, line);
  return parse_processor_times(line);
}

double stolen_share(const ProcessorTimes& before, const ProcessorTimes& after) {
  return after.all <= before.all || after.stolen <= before.stolen
             ? 0.0
             : static_cast<double>(after.stolen - before.stolen) /
                   static_cast<double>(after.all - before.all);
}

Pace pace_of(const scenario::Topology& topology, const fabric::FabricSnapshot& fabric,
             double stolen) {
  const base::Duration bearable =
      base::nanoseconds(shortest_way(topology).count() / kDelaysPerLate);
  return {.mean_late_us = fabric.mean_late_us,
          .p99_late_us = fabric.p99_late_us,
          .limit_us = base::microseconds_of(std::max(kMaxMeanLate, bearable)),
          .missed = fabric.missed_in + fabric.missed_out,
          .stolen = stolen};
}

std::string pace_sentence(const Pace& pace) {
  if (pace.kept_up()) {
    return {};
  }
  const std::string remedy = pace.remedy.empty() ? "" : "; " + pace.remedy;
  if (pace.fabric_kept_up()) {
    return fmt::format(
               "this virtual machine's host took away {:.0f} % of its processors' time (up to "
               "{:.0f} is bearable), and all times of this run include that",
               100 * pace.stolen, 100 * kMaxStolen) +
           remedy;
  }
  std::string sentence = fmt::format(
      "the emulated fabric fell behind: frames left {:.0f} us late on average, {:.0f} us at p99 "
      "(up to {:.0f} on average is bearable)",
      pace.mean_late_us, pace.p99_late_us, pace.limit_us);
  if (pace.missed > 0) {
    sentence += fmt::format(", and it lost {} itself", pace.missed);
  }
  return sentence + remedy;
}

}  // namespace spillway::lab
