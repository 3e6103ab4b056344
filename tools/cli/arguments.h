// SPDX-License-Identifier: Apache-2.0
//
// The input of commands: values of options, and scenarios from files. A wrong value is a usage
// error (exit code 2) that names the option and the allowed values, wherever it is detected.
// Failures with valid options are CommandErrors (exit code 1).
#pragma once

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/scenario/scenario.h"
#include "switch/fabric/emulator.h"

namespace spillway::cli {

// ------------------------------------------------------------------ values

// Parsing of option values. A wrong value is a usage error (exit code 2) that names the option and
// the allowed values, wherever it is detected. Failures with valid options are CommandErrors (exit
// code 1).

// Returns the parsed value of an option, or throws a usage error.
template <typename T>
T parsed(const char* option, const base::Result<T>& result) {
  if (!result.ok()) {
    throw CLI::ValidationError(option, result.status().message());
  }
  return *result;
}

// Throws a usage error if a value that was checked is wrong.
inline void check_option(const std::string& option, const base::Status& status) {
  if (!status.ok()) {
    throw CLI::ValidationError(option, status.message());
  }
}

// Replaces CLI11's own check, which accepts a number with too many digits as the largest one and
// prints its limits as floating-point numbers.
inline CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  return {
      [least, most](const std::string& text) -> std::string {
        std::uint64_t value = 0;
        const char* end = text.data() + text.size();
        const auto [read, error] = std::from_chars(text.data(), end, value);
        const bool is_good = error == std::errc{} && read == end && value >= least && value <= most;
        return is_good ? ""
                       : fmt::format("'{}' is not a whole number from {} to {}", text, least, most);
      },
      ""};
}

inline CLI::Validator any_seed() {
  return whole_number(0, UINT64_MAX);
}

inline constexpr std::uint64_t kMaxSeeds = 1'000'000'000;  // takes years

// For commands that run random worlds: `seeds` of them from `first` on, or only `seed`.
template <typename Options>
void add_seed_options(CLI::App& command, Options& options) {
  command.add_option("--seeds", options.seeds, "How many worlds")
      ->check(whole_number(1, kMaxSeeds));
  command.add_option("--first", options.first, "Seed of the first; the others follow it")
      ->check(any_seed());
  command.add_option("--seed", options.seed, "Only this world, and print what it is")
      ->check(any_seed());
}

// ------------------------------------------------------------------ scenarios

// Loads a scenario from its text, and the topology file it names, if any, from the text's folder.
// An attached scenario also says where its hosts are attached (`port` lines), for switches between
// real hosts. Throws CommandError with the file's name if a file cannot be read or parsed, and a
// usage error if only the overrides are wrong.

std::string read_text(const std::filesystem::path& path);

// `source` names the text in messages: its path, unless it came from elsewhere. `options` names the
// options that the overrides came from.
scenario::Scenario scenario_from(const std::string& text, const std::string& source,
                                 std::span<const std::string> overrides,
                                 const std::string& options = "--set");
scenario::Scenario load_scenario(const std::string& path, std::span<const std::string> overrides);

struct AttachedScenario {
  scenario::Scenario scenario;
  std::vector<fabric::PortAttachment> ports;  // one per host
};

AttachedScenario load_attached_scenario(const std::string& path,
                                        std::span<const std::string> overrides);

}  // namespace spillway::cli
