// SPDX-License-Identifier: Apache-2.0
//
// Switches that add sum packets (dataplane/sum_slots.h), as data, and the `aggregate` lines of a
// scenario that configure them:
//
//   aggregate slots=4096 policy=preemptive level=0 lease=100ms
//   aggregate switch=spine* level=1 slots=512 policy=static pools=2 limits=1:64,2:128
//
// `switch` is a name, or a prefix of names and a `*`; without it all switches add. `policy` is
// static, first-come or preemptive. `pools` divides a static switch's slots equally among that many
// jobs, by their numbers. `limits` are jobs and how many slots each may hold at a time. Without an
// `aggregate` line no switch adds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sim/scenario/directives.h"
#include "switch/dataplane/sum_slots.h"

namespace spillway::scenario {

inline constexpr std::uint32_t kDefaultSlots = 4096;

struct JobSlots {
  std::uint16_t job = 0;
  std::uint32_t slots = 0;
};

struct Aggregation {
  std::string place;     // for messages: "line 4"
  std::string switches;  // a name, or a prefix and '*'; empty: all
  spillway_sum_config config = {.slots = kDefaultSlots,
                                .lease_us = SPILLWAY_SUM_LEASE_US,
                                .pools = 1,
                                .policy = SPILLWAY_SUM_PREEMPTIVE,
                                .level = 0,
                                .reserved = {}};
  std::vector<JobSlots> limits;

  bool is_for(std::string_view switch_name) const;
};

base::Status read_aggregation(const Directive& directive, Aggregation& aggregation);

// "static", "first-come", "preemptive"
std::string_view policy_name(std::uint8_t policy);

}  // namespace spillway::scenario
