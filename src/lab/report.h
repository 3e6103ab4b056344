// SPDX-License-Identifier: Apache-2.0
//
// What a lab's supervisor writes to whoever started it, as lines of text over a pipe:
//
//   ready                          the network stands and the commands run
//   error CODE sentence            it does not, or the fabric broke
//   exit CODE                      of a rank, in their order
//   interrupted SIGNAL
//   failed RANK                    the first to fail, where one did
//   overlimit                      they were ended because their time was over
//   dataplane NAME
//   fabric N N N ...               FabricSnapshot's numbers in their order
//   port NAME N N N ...            one per switch port
//   adder NAME N N N ...           one per switch that adds, its jobs behind it:
//   sums N N N ...
//   pace N N N ...                 Pace's
//   time NAME N N N ...            TimeReport's
//   trace N N N ...                TraceSummary's, where packets were followed
//   took N N                       nanoseconds, then those of processors
//   sample N N N ...               FabricSample's, again and again while commands run
//
// Both ends are of the same binary: there is no version.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "lab/lab_options.h"
#include "lab/network/fabric_sampler.h"

namespace spillway::lab {

inline constexpr std::string_view kReadyLine = "ready\n";

std::string error_line(const base::Status& status);
std::string outcome_lines(const LabOutcome& outcome);
std::string sample_line(const FabricSample& sample);

struct Report {
  bool ready = false;
  base::Status error;
  LabOutcome outcome;
};

// Lines that are cut off or not understood are passed over: their writer died.
Report parse_report(std::string_view text);

// None: the line says something else.
std::optional<FabricSample> parse_sample(std::string_view line);

}  // namespace spillway::lab
