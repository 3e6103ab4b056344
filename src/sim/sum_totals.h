// SPDX-License-Identifier: Apache-2.0
//
// What switches that add have done, by switch and job. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/sum_slots.h"

namespace spillway::sim {

struct SumJobTotals {
  std::uint16_t job = 0;
  std::uint32_t held = 0;   // slots with parts of it that have not gone on
  std::uint32_t limit = 0;  // of these; 0: none
  spillway_sum_counters counters = {};
};

struct AdderTotals {
  std::string name;  // of the switch
  spillway_sum_config config = {};
  std::uint32_t held = 0;  // slots that wait for parts
  spillway_sum_counters counters = {};
  std::vector<SumJobTotals> jobs;  // all that were met, by number
};

// Of an outcome's counter: "adds", "passed_cut".
std::string_view sum_outcome_name(std::size_t outcome);

}  // namespace spillway::sim
