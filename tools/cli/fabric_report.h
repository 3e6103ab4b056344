// SPDX-License-Identifier: Apache-2.0
//
// Counters of a fabric's switches as a table, as JSON and for Prometheus.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "base/units.h"
#include "sim/sum_table.h"
#include "switch/fabric/emulator.h"
#include "tools/cli/output.h"

namespace spillway::cli {

// ------------------------------------------------------------------ switches that add

// Counters of switches that add sums, as a table, as JSON and for Prometheus.

nlohmann::json adders_json(const std::vector<sim::AdderTotals>& adders);

// A row per switch and job.
TextTable adders_table(const std::vector<sim::AdderTotals>& adders);

// Prometheus' text format; empty if no switch adds.
std::string adders_metrics(const std::vector<sim::AdderTotals>& adders);

// ------------------------------------------------------------------ all switches

// A fabric's counters as text, as JSON and for Prometheus.

// A row per switch port. Rates cover the time since `before`, `elapsed` earlier; the whole run if
// that is empty.
TextTable fabric_table(const fabric::FabricSnapshot& now, const fabric::FabricSnapshot& before,
                       base::Duration elapsed);

// A line of totals, and a line for each thing that should not have happened but did.
std::string fabric_summary(const fabric::FabricSnapshot& snapshot);

// Packets by decision, keyed by the reason's name.
nlohmann::json reasons_json(const spillway_port_counters& counters);

nlohmann::json fabric_json(const fabric::FabricSnapshot& snapshot);

// Prometheus' text format.
std::string fabric_metrics(const fabric::FabricSnapshot& snapshot);

}  // namespace spillway::cli
