// SPDX-License-Identifier: Apache-2.0
//
// `spillway lab presets`: the networks that come with the tool, and their texts.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "cli/commands.h"
#include "cli/text_table.h"
#include "lab/presets.h"

namespace spillway::cli {
namespace {

void run(const std::string& name) {
  if (!name.empty()) {
    fmt::print("{}", value_or_throw(lab::find_preset(name)).text);
    return;
  }
  TextTable table({"preset", "what it is"});
  for (const lab::Preset& preset : lab::presets()) {
    table.add_row({std::string(preset.name), std::string(preset.summary())});
  }
  fmt::print("{}", table.to_string());
}

}  // namespace

void add_lab_presets(CLI::App& lab) {
  const auto name = std::make_shared<std::string>();
  CLI::App* command = lab.add_subcommand("presets", "Networks by name, or the text of one");
  command->add_option("preset", *name, "Print this one, as a scenario to start from");
  command->footer("Examples:\n  spillway lab presets\n  spillway lab presets incast > mine.scn");
  command->callback([name] { run(*name); });
}

}  // namespace spillway::cli
