// SPDX-License-Identifier: Apache-2.0
//
// One command over one transport, from beginning to end: what is known about it. Plain values.
#pragma once

#include <string>
#include <vector>

#include "compare/progress_log.h"
#include "compare/transport.h"
#include "lab/fabric_sample.h"
#include "lab/lab_options.h"

namespace spillway::compare {

struct RunRecord {
  Transport transport;
  lab::LabOutcome outcome;
  std::vector<lab::FabricSample> samples;  // in the order of their times
  ProgressLog log;
  std::string log_path;
  std::string output_path;  // what the ranks printed
};

// Runs of one command on one network.
struct Comparison {
  std::vector<std::string> command;       // with its placeholders
  std::vector<RunRecord> runs;            // the first is what the others are compared with
  std::optional<double> wanted_accuracy;  // 0 to 1; none: see target_accuracy() in metrics.h
};

}  // namespace spillway::compare
