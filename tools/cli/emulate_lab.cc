// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/emulate_lab.h"

#include <filesystem>

#include "tools/cli/commands.h"

namespace spillway::cli {

void add_lab_options(CLI::App& command, EmulateLabOptions& options, const std::string& what) {
  command.add_option("--preset", options.preset,
                     what + " a lab with this network (spillway lab presets)");
  command
      .add_option("--lab", options.words, "A further word for that lab: --lab=--rate --lab=1gbit")
      ->allow_extra_args(false);
}

std::string own_program() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    throw CommandError("/proc/self/exe cannot be read");
  }
  return program.string();
}

std::vector<std::string> lab_command(const EmulateLabOptions& options, std::size_t hosts,
                                     const std::vector<std::string>& command) {
  std::vector<std::string> words = {
      own_program(), "lab", "run", "--preset", options.preset, "--hosts", std::to_string(hosts)};
  words.insert(words.end(), options.words.begin(), options.words.end());
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

}  // namespace spillway::cli
