// SPDX-License-Identifier: Apache-2.0
//
// Runs a command over one transport on every host of a lab, and keeps what came of it. What ranks
// print goes to FOLDER/NAME.txt, the log of rank 0 is FOLDER/NAME.jsonl, what the lab saw of a
// PyTorch script FOLDER/NAME.steps.jsonl, with the transport's name, and the number of the round
// behind it from the second on; older ones of these names are replaced.
//
// Call from a process with one thread (lab/launcher.h). Whatever goes wrong is in the record, so
// that other transports can still run: see failure_of().
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "compare/comparison.h"
#include "lab/lab_options.h"

namespace spillway::compare {

// A run that is under way.
struct RunProgress {
  const Transport& transport;
  const lab::FabricSample& sample;  // the latest
  const ProgressLog& log;           // so far, of the command or of the lab
};

struct RunTask {
  lab::LabOptions options;  // `output`, `on_sample` and `tcp` are replaced
  std::vector<std::string> command;
  std::filesystem::path folder;  // exists
  std::size_t round = 1;
  // About ten times a second while the command runs.
  std::function<void(const RunProgress&)> on_progress;
};

RunRecord run_transport(const RunTask& task, const Transport& transport);

}  // namespace spillway::compare
