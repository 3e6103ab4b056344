// SPDX-License-Identifier: Apache-2.0
//
// Options of `spillway switch attach` and `run` for adding sums: they replace or complement the
// scenario's `aggregate` lines.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"

namespace spillway::cli {

struct SumOptions {
  std::string slots;  // text of the option; empty: not given
  std::string policy;
  std::string level;
  std::vector<std::string> limits;  // "JOB=SLOTS"
};

void add_sum_options(CLI::App& command, SumOptions& options);

// Throws if the options are inconsistent.
void apply_sum_options(const SumOptions& options, scenario::Scenario& scenario);

}  // namespace spillway::cli
