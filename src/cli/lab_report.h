// SPDX-License-Identifier: Apache-2.0
//
// What came of packets that were followed, for people and as JSON.
//
// What came of a lab, for people and as JSON: what its switches did, whether its fabric kept up
// with the clock, and where the time went.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

#include "lab/lab_options.h"
#include "lab/trace/trace_summary.h"

namespace spillway::cli {

// Where the times in a summary were spent; nothing: times are not known.
enum class TimesOf : std::uint8_t { kNothing, kSwitch, kFabric };

// A table of packets by outcome, the times, what is missing from the trace, and how to open it.
std::string trace_table(const lab::TraceSummary& trace, TimesOf times, std::string_view path);

nlohmann::json trace_json(const lab::TraceSummary& trace);

// What the fabric did to how many frames, in a few lines.
std::string lab_summary(const lab::LabOutcome& outcome);

// The busiest link's use over time, what was sent or arrived for nothing, and what ranks waited for
// while the link was idle. Empty where nothing was carried.
std::string time_text(const lab::TimeReport& time, const spillway_port_counters& switches);
nlohmann::json time_json(const lab::TimeReport& time);
nlohmann::json pace_json(const lab::Pace& pace);

std::string lab_outcome_json(const lab::LabOutcome& outcome);

}  // namespace spillway::cli
