// SPDX-License-Identifier: Apache-2.0
//
// The transports over which a command can be compared, and how the command learns its transport:
//
//   tcp                Gloo over TCP cubic, what nearly everybody runs
//   tcp-bbr            the same over TCP bbr
//   tcp-fp16           tcp with DDP's fp16 hook: 16 bits per value
//   tcp-powersgd       tcp with DDP's PowerSGD hook: low-rank gradients
//   spillway-exact     Spillway, lossless
//   spillway-16        Spillway, tolerant, 16 bits per value
//   spillway           Spillway, tolerant, as configured (planes unless SPILLWAY_CODEC is set)
//   spillway-flat      as spillway, but no layer is sent before another
//   spillway-over-tcp  as spillway, but its messages travel over TCP cubic connections
//
// Each transport uses the congestion control given here, whatever the machine's default. Each has a
// control: the transport that sends the same bits over plain TCP; `tcp` as a control means the
// faster of tcp and tcp-bbr. spillway-exact has none: its floats may travel as code. With it, the
// split (comparison.h) separates the gain of fewer bits from that of the transport. `spillway` also
// has a flat twin, which separates the gain of scheduling: PyTorch's front layers go first in
// `spillway`, and all have one priority in the twin. Pure functions.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "lab/compare/progress_log.h"
#include "lab/launcher.h"
#include "lab/network/lab_fabric.h"

namespace spillway::compare {

struct RunRecord;  // comparison.h

struct Transport {
  std::string name;
  std::string title;    // for people: the name, and which TCP if there is one
  std::string backend;  // its name in torch.distributed
  std::string tcp;      // congestion control of the hosts
  std::string hook;     // torch's, around DistributedDataParallel; empty: none
  std::string control;  // the name of the transport with the same bits over plain TCP
  std::string flat;     // the name of the flat twin; empty: none
  std::vector<std::string> variables;  // "KEY=value"
  std::vector<std::string> defaults;   // the same, for those that the caller has not set
};

// "tcp,spillway": at least one, none twice. An error lists the known names.
base::Result<std::vector<Transport>> parse_transports(std::string_view names);

// Returns `command` with {backend}, {transport} and {log} replaced wherever they occur in a word.
std::vector<std::string> command_for(const std::vector<std::string>& command,
                                     const Transport& transport, const std::string& log);

// False if all runs have the same words.
bool depends_on_transport(const std::vector<std::string>& command);

// Runs a command over one transport on every host of a lab, and keeps the results. Ranks print to
// FOLDER/NAME.txt, and the log of rank 0 is FOLDER/NAME.jsonl. The lab's own observations of a
// PyTorch script are in FOLDER/NAME.steps.jsonl. NAME is the transport's name, followed by the
// round's number from the second round on. Existing files of these names are replaced.
//
// Call from a process with one thread (lab/launcher.h). Errors are kept in the record, so that
// other transports can still run: see failure_of().

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
