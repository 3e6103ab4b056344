// SPDX-License-Identifier: Apache-2.0
//
// A simulation as a Chrome trace (chrome://tracing, ui.perfetto.dev): JSON in which every flow is a
// bar in a lane of its source host, flows of one host that overlap in several lanes, and the
// switches' marks, trims and drops are counters. A job is a process. Times are simulated
// microseconds. Flows that had not ended when the run did reach to its end and say so.
#pragma once

#include <string>

#include "sim/results.h"

namespace spillway::sim {

std::string chrome_trace_of(const ScenarioResult& result);

}  // namespace spillway::sim
