// SPDX-License-Identifier: Apache-2.0
#include "compare/notes.h"

#include <fmt/format.h>

#include "compare/metrics.h"

namespace spillway::compare {
namespace {

using Notes = std::vector<std::string>;

void note_failures(const RunRecord& run, Notes& notes) {
  for (std::size_t rank = 0; rank < run.outcome.exit_codes.size(); ++rank) {
    if (run.outcome.exit_codes[rank] != 0) {
      notes.push_back(fmt::format("{}: rank {} ended with exit code {}; what it printed is in {}",
                                  run.transport.name, rank, run.outcome.exit_codes[rank],
                                  run.output_path));
      return;
    }
  }
}

void note_log(const RunRecord& run, Notes& notes) {
  const ProgressLog& log = run.log;
  const std::string& name = run.transport.name;
  if (log.bad_lines > 0) {
    notes.push_back(fmt::format("{}: lines of {} that were not understood and are left out: {}",
                                name, run.log_path, count_text(log.bad_lines)));
  }
  if (log.left_out > 0) {
    notes.push_back(fmt::format("{}: {} steps and evaluations beyond the first {} are left out",
                                name, count_text(log.left_out), count_text(kMostPoints)));
  }
}

// One note for all: a command that writes no log writes none over any transport.
void note_missing_logs(const std::vector<RunRecord>& runs, Notes& notes) {
  std::vector<std::string> names;
  for (const RunRecord& run : runs) {
    if (run.log.is_empty()) {
      names.push_back(run.transport.name);
    }
  }
  if (!names.empty()) {
    notes.push_back(fmt::format(
        "{}: wrote no log, so there are no step times and no accuracy; for these, let rank 0 write "
        "a line per step, such as {{\"event\": \"step\", \"step\": 7, \"seconds\": 1.25, "
        "\"step_ms\": 80.5}}, to the file that {{log}} in the command becomes",
        fmt::join(names, ", ")));
  }
}

void note_emulation(const RunRecord& run, Notes& notes) {
  const fabric::FabricSnapshot& fabric = run.outcome.fabric;
  if (fabric.missed_in + fabric.missed_out > 0) {
    notes.push_back(
        fmt::format("{}: the emulation itself lost {} frames, because this machine is too slow for "
                    "the load: give --rate less",
                    run.transport.name, count_text(fabric.missed_in + fabric.missed_out)));
  }
}

}  // namespace

std::vector<std::string> notes_of(const Comparison& comparison) {
  Notes notes;
  for (const RunRecord& run : comparison.runs) {
    note_failures(run, notes);
    note_log(run, notes);
    note_emulation(run, notes);
  }
  note_missing_logs(comparison.runs, notes);
  if (!comparison.runs.empty() &&
      comparison.runs.front().outcome.isolation == lab::Isolation::kNone) {
    notes.emplace_back(lab::kLoopbackNotice);
  }
  return notes;
}

}  // namespace spillway::compare
