// SPDX-License-Identifier: Apache-2.0
//
// Shared by the verbs that make a lab: options for its network, running a command on every host,
// and printing the result. `lab run` does just that; `trace` also traces packets, and `lab up`
// keeps the network.
//
// The scenario starts as a preset or a file (default: the preset clean). Options for its parts
// (--hosts, --rate, --loss ...) change it, and --set overrides the result.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/launcher.h"
#include "lab/trace/packet_paths.h"

namespace spillway::cli {

// ------------------------------------------------------------------ options and runs

struct NetworkOptions {
  std::string preset;
  std::string scenario;
  std::optional<std::uint32_t> hosts;
  std::uint16_t ranks_per_host = 1;  // add_ranks_option()
  std::optional<std::uint32_t> leaves;
  std::optional<std::uint32_t> spines;
  std::string rate;
  std::string buffer;
  std::string delay;
  std::string fabric;
  std::string mode;
  std::string loss;
  std::string bursty;
  bool aggregate = false;
  std::vector<std::string> background;
  std::vector<std::string> overrides;
  std::string isolation = "auto";
  std::string dataplane = "auto";
  std::optional<unsigned> mtu;  // unset: the scenario's
  std::string tcp;
  std::vector<std::string> environment;
  bool allow_late = false;
};

void add_network_options(CLI::App& command, NetworkOptions& options);
// For commands that run on every host of a lab of their own.
void add_ranks_option(CLI::App& command, NetworkOptions& options);

// Throws a usage error if the options make no lab, and CommandError if the scenario makes none.
lab::LabOptions lab_options_of(const NetworkOptions& network);

// True if the user chose the links' rate.
bool has_fixed_rate(const NetworkOptions& network);

// "time 4 times as slow: links of 62500kbit, ...", about a network that was slowed down.
std::string slower_text(const scenario::Scenario& slowed, double factor);

// How to have a run on time that was late: "give --rate 125mbit".
std::string remedy_for(const NetworkOptions& network, const scenario::Scenario& scenario,
                       const lab::Pace& late);

enum class Progress : std::uint8_t { kShown, kHidden };

// Returns the lab, slowed down if this machine could not emulate it on time; a line on standard
// error says so. If the rate is fixed, throws CommandError with the possible rate instead. Throws
// CommandExit if a signal ended the trial.
lab::LabOptions on_time(lab::LabOptions options, const NetworkOptions& network,
                        Progress progress = Progress::kShown);

struct LabCommandOptions {
  NetworkOptions network;
  double grace_seconds = 10.0;
  bool json = false;
  bool quiet = false;
  std::vector<std::string> command;
};

// Returns the option for the command.
CLI::Option* add_lab_command_options(CLI::App& verb, LabCommandOptions& options);

// Makes the network, runs the command and removes the network. A `trace` without a path means no
// packet trace. Runs the command once more, in a slower network, if lab::after_run() says so.
lab::LabOutcome run_lab_command(const LabCommandOptions& command, const lab::TraceOptions& trace);

// Prints JSON or `summary`. If a rank failed, throws CommandExit with the worst exit code. Throws
// CommandError if the run was late and does not count; if it counts, prints that it was late.
void end_lab_command(const LabCommandOptions& options, const lab::LabOutcome& outcome,
                     const std::string& summary);

// ------------------------------------------------------------------ results

// Results of a lab as text and as JSON: packet traces, what its switches did, whether its fabric
// kept up with the clock, and where the time went.

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
