// SPDX-License-Identifier: Apache-2.0
//
// Counters of switches that add, by switch and job. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "switch/dataplane/sum_slots.h"

namespace spillway::sim {

struct SumJobTotals {
  std::uint16_t job = 0;
  std::uint32_t held = 0;   // slots with parts that have not been forwarded
  std::uint32_t limit = 0;  // of `held`; 0: none
  spillway_sum_counters counters = {};
};

struct AdderTotals {
  std::string name;  // of the switch
  spillway_sum_config config = {};
  std::uint32_t held = 0;  // slots waiting for parts
  spillway_sum_counters counters = {};
  std::vector<SumJobTotals> jobs;  // all jobs seen, by number
};

// The name of an outcome's counter: "adds", "passed_cut".
std::string_view sum_outcome_name(std::size_t outcome);

}  // namespace spillway::sim
