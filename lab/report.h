// SPDX-License-Identifier: Apache-2.0
//
// What a lab's supervisor writes to its starter, as lines of text over a pipe:
//
//   ready                          the network is up and the commands run
//   error CODE sentence            it could not start, or the fabric failed
//   exit CODE                      of a rank, in rank order
//   interrupted SIGNAL
//   failed RANK                    the first to fail, if one did
//   overlimit                      the commands were ended because the limit expired
//   dataplane NAME
//   fabric N N N ...               FabricSnapshot's numbers in their order
//   port NAME N N N ...            one per switch port
//   adder NAME N N N ...           one per switch that adds, followed by its jobs:
//   sums N N N ...
//   pace N N N ...                 Pace's
//   time NAME N N N ...            TimeReport's
//   trace N N N ...                TraceSummary's, if packets were followed
//   took N N                       nanoseconds elapsed, then nanoseconds of CPU time
//   sample N N N ...               FabricSample's, repeatedly while commands run
//
// Both ends are the same binary, so there is no version.
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

// Skips lines that are cut off or not understood: their writer died.
Report parse_report(std::string_view text);

// Null if the line is not a sample.
std::optional<FabricSample> parse_sample(std::string_view line);

}  // namespace spillway::lab
