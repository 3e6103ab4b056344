// SPDX-License-Identifier: Apache-2.0
//
// Runs a command over one transport on every host of a lab, and keeps the results. Ranks print to
// FOLDER/NAME.txt, and the log of rank 0 is FOLDER/NAME.jsonl. What the lab saw of a PyTorch script
// is in FOLDER/NAME.steps.jsonl. NAME is the transport's name, followed by the round's number from
// the second round on. Existing files of these names are replaced.
//
// Call from a process with one thread (lab/launcher.h). Errors are kept in the record, so that
// other transports can still run: see failure_of().
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lab/compare/comparison.h"
#include "lab/lab_options.h"

namespace spillway::compare {

// A run in progress.
struct RunProgress {
  const Transport& transport;
  const lab::FabricSample& sample;  // the latest
  const ProgressLog& log;           // so far, of the command or of the lab
};

struct RunTask {
  lab::LabOptions options;  // `output`, `on_sample` and `tcp` are replaced
  std::vector<std::string> command;
  std::filesystem::path folder;  // must exist
  std::size_t round = 1;
  // Called about ten times a second while the command runs.
  std::function<void(const RunProgress&)> on_progress;
};

RunRecord run_transport(const RunTask& task, const Transport& transport);

}  // namespace spillway::compare
