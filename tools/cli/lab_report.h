// SPDX-License-Identifier: Apache-2.0
//
// Results of a lab as text and as JSON: packet traces, what its switches did, whether its fabric
// kept up with the clock, and where the time went.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

#include "lab/lab_options.h"
#include "lab/trace/trace_summary.h"

namespace spillway::cli {

// Where the times in a summary were spent. kNothing: times are unknown.
enum class TimesOf : std::uint8_t { kNothing, kSwitch, kFabric };

// A table of packets by outcome, the times, what the trace lacks, and how to open it.
std::string trace_table(const lab::TraceSummary& trace, TimesOf times, std::string_view path);

nlohmann::json trace_json(const lab::TraceSummary& trace);

// How many frames the fabric trimmed, dropped and so on, in a few lines.
std::string lab_summary(const lab::LabOutcome& outcome);

// The busiest link's use over time, data sent or received in vain, and what ranks waited for while
// the link was idle. Empty if nothing was carried.
std::string time_text(const lab::TimeReport& time, const spillway_port_counters& switches);
nlohmann::json time_json(const lab::TimeReport& time);
nlohmann::json pace_json(const lab::Pace& pace);

std::string lab_outcome_json(const lab::LabOutcome& outcome);

}  // namespace spillway::cli
