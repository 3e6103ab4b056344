// SPDX-License-Identifier: Apache-2.0
#include "sim/sum_totals.h"

#include <array>

#include "base/check.h"

namespace spillway::sim {
namespace {

constexpr std::array<std::string_view, SPILLWAY_SUM_OUTCOMES> kNames = {
    "claims",      "adds",         "emits",        "duplicates",     "reemits",        "collisions",
    "evictions",   "expired",      "overlaps",     "late",           "flushes",        "not_held",
    "results",     "stale",        "passed_alone", "passed_again",   "passed_level",   "passed_cut",
    "passed_ipv6", "passed_limit", "passed_jobs",  "passed_invalid", "passed_no_slots"};

}  // namespace

std::string_view sum_outcome_name(std::size_t outcome) {
  SPILLWAY_CHECK(outcome < kNames.size());
  return kNames[outcome];
}

}  // namespace spillway::sim
