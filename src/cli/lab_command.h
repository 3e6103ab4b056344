// SPDX-License-Identifier: Apache-2.0
//
// What the verbs that make a lab share: the options that describe its network, the run of a command
// on every host, and what is printed of it. `lab run` is that alone; `trace run` follows the
// packets, and `lab up` keeps the network.
//
// The scenario begins as a preset or a file (default: the preset clean). Options for its parts
// (--hosts, --rate, --loss ...) change it, and --set changes what they made of it: the last word.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/lab_options.h"

namespace spillway::cli {

struct NetworkOptions {
  std::string preset;
  std::string scenario;
  std::optional<std::uint32_t> hosts;
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
  std::optional<unsigned> mtu;  // else the scenario's
  std::string tcp;
  std::vector<std::string> environment;
  bool allow_late = false;
};

void add_network_options(CLI::App& command, NetworkOptions& options);

// Throws CommandError where they make no sense.
lab::LabOptions lab_options_of(const NetworkOptions& network);

// True if the user said how fast links are.
bool has_fixed_rate(const NetworkOptions& network);

// For lines that say how much slower time runs.
inline constexpr const char* kComputingIsNotSlowed =
    ". What ranks compute is not slowed, so it weighs less against communication";

// The same lab, slowed down if this machine would emulate it late otherwise; one line on standard
// error says so. Where the rate is fixed it throws CommandError with the rate that is possible, and
// CommandExit where a signal ended the trial.
lab::LabOptions on_time(lab::LabOptions options, const NetworkOptions& network);

struct LabCommandOptions {
  NetworkOptions network;
  double grace_seconds = 10.0;
  bool json = false;
  bool quiet = false;
  std::vector<std::string> command;
};

void add_lab_command_options(CLI::App& verb, LabCommandOptions& options);

// From the network's making to its end. `trace` has no path: packets are not followed.
lab::LabOutcome run_lab_command(const LabCommandOptions& command, const lab::TraceOptions& trace);

// Prints JSON or `summary` and, where a rank failed, throws CommandExit with the worst exit code.
void end_lab_command(const LabCommandOptions& options, const lab::LabOutcome& outcome,
                     const std::string& summary);

}  // namespace spillway::cli
