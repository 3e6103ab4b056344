// SPDX-License-Identifier: Apache-2.0
//
// Bits against error of every code (bench/codec/rate_distortion.h), as a table, JSON and a plot.
#pragma once

#include <nlohmann/json.hpp>

#include "tools/bench/codec/rate_distortion.h"
#include "tools/cli/text_table.h"
#include "tools/plot/svg_chart.h"

namespace spillway::cli {

TextTable rates_table(const bench::RateDistortion& rates);
nlohmann::json rates_json(const bench::RateDistortion& rates);

// A line per family. Codes that lose next to nothing appear only in the table: they would leave no
// room for the others.
plot::Chart rates_chart(const bench::RateDistortion& rates);

}  // namespace spillway::cli
