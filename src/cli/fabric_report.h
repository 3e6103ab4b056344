// SPDX-License-Identifier: Apache-2.0
//
// What a fabric did, for people, programs and monitoring systems.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/units.h"
#include "cli/text_table.h"
#include "fabric/emulator.h"

namespace spillway::cli {

// A row per switch port. Rates are those since `before`, `elapsed` earlier; of all time where that
// is empty.
TextTable fabric_table(const fabric::FabricSnapshot& now, const fabric::FabricSnapshot& before,
                       base::Duration elapsed);

// A line of totals, and a line for each thing that should not happen and did.
std::string fabric_summary(const fabric::FabricSnapshot& snapshot);

// Packets by what was decided about them: by the reason's name.
nlohmann::json reasons_json(const spillway_port_counters& counters);

nlohmann::json fabric_json(const fabric::FabricSnapshot& snapshot);

// Prometheus' text format.
std::string fabric_metrics(const fabric::FabricSnapshot& snapshot);

}  // namespace spillway::cli
