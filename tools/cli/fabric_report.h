// SPDX-License-Identifier: Apache-2.0
//
// A fabric's counters as text, as JSON and for Prometheus.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/units.h"
#include "switch/fabric/emulator.h"
#include "tools/cli/text_table.h"

namespace spillway::cli {

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
