// SPDX-License-Identifier: Apache-2.0
//
// Counters of switches that add sums, as a table, as JSON and for Prometheus.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/sum_totals.h"
#include "tools/cli/text_table.h"

namespace spillway::cli {

nlohmann::json adders_json(const std::vector<sim::AdderTotals>& adders);

// A row per switch and job.
TextTable adders_table(const std::vector<sim::AdderTotals>& adders);

// Prometheus' text format; empty if no switch adds.
std::string adders_metrics(const std::vector<sim::AdderTotals>& adders);

}  // namespace spillway::cli
