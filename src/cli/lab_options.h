// SPDX-License-Identifier: Apache-2.0
//
// The options by which `lab run` and `lab up` describe a network, and the lab they amount to.
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

struct NetworkArguments {
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
  std::vector<std::string> background;
  std::vector<std::string> overrides;
  std::string isolation = "auto";
  std::string dataplane = "auto";
  unsigned mtu = lab::kDefaultMtu;
  std::string tcp;
  std::vector<std::string> environment;
};

void add_network_options(CLI::App& command, NetworkArguments& arguments);

// Throws CommandError where they make no sense.
lab::LabOptions lab_options_of(const NetworkArguments& arguments);

}  // namespace spillway::cli
