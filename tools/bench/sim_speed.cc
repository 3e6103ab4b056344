// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/sim_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "sim/simulation.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {
namespace {

// Sixteen hosts per leaf and sixteen spines: no oversubscription. Packets of 4 KB, as in htsim.
scenario::Scenario permutation(const SimSpeedOptions& options) {
  const std::string text = fmt::format(
      "limit 1s\n"
      "topology leaf-spine hosts={} leaves={} spines=16 rate=100gbit delay=1us\n"
      "switch mode=spillway queue=256k ecn=64k\n"
      "job protocol=spillway pattern=permutation bytes={}MB packet=4068 paths=16 report=16 "
      "burst=4 unsolicited=256k window-initial=512k delay-target=10us\n",
      options.hosts, std::max(1U, options.hosts / 16), options.megabytes);
  return value_or_throw(scenario::parse_scenario(text));
}

// CPU time of this process, so that other load on the machine does not count.
double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

}  // namespace

SimSpeed measure_sim_speed(const SimSpeedOptions& options, Progress& progress) {
  const scenario::Scenario scenario = permutation(options);
  SimSpeed best;
  for (int i = 0; i < options.repetitions; ++i) {
    progress.step(fmt::format("{} hosts", options.hosts));
    const double start = processor_seconds();
    const sim::ScenarioResult result = value_or_throw(sim::run_scenario(scenario));
    const double seconds = processor_seconds() - start;
    if (!result.finished) {
      throw CommandError("the flows did not end within a simulated second");
    }
    if (i == 0 || seconds < best.seconds) {
      best = {.hosts = options.hosts,
              .packets = result.network.delivered_data,
              .events = result.events,
              .seconds = seconds,
              .slowdown = result.jobs[0].slowdown};
    }
  }
  return best;
}

}  // namespace spillway::bench
