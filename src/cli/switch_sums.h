// SPDX-License-Identifier: Apache-2.0
//
// What a switch adds up, as options of `spillway switch attach` and `run`: in place of, or on top
// of, the scenario's `aggregate` lines.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "scenario/scenario.h"

namespace spillway::cli {

struct SumOptions {
  std::string slots;  // as given; empty: not given
  std::string policy;
  std::string level;
  std::vector<std::string> limits;  // "JOB=SLOTS"
};

void add_sum_options(CLI::App& command, SumOptions& options);

// Throws where they say what cannot be.
void apply_sum_options(const SumOptions& options, scenario::Scenario& scenario);

}  // namespace spillway::cli
