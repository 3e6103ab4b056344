// SPDX-License-Identifier: Apache-2.0
//
// A comparison for the terminal: a row per metric, a column per run, ratios to the first beside the
// others.
#pragma once

#include "cli/text_table.h"
#include "compare/run_record.h"

namespace spillway::cli {

TextTable compare_table(const compare::Comparison& comparison);

}  // namespace spillway::cli
