// SPDX-License-Identifier: Apache-2.0
#include "cli/lab_selection.h"

#include <fmt/format.h>

#include "cli/command_error.h"

namespace spillway::cli {

lab::LabRecord select_lab(const std::string& name) {
  const std::vector<lab::LabRecord> labs =
      value_or_throw(lab::live_labs(lab::default_state_root()));
  if (labs.empty()) {
    throw CommandError("no lab is running: start one with 'spillway lab up'");
  }
  std::string names;
  for (const lab::LabRecord& lab : labs) {
    if (lab.name == name || (name.empty() && labs.size() == 1)) {
      return lab;
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", lab.name);
  }
  throw CommandError(
      name.empty() ? fmt::format("several labs are running: give --name, one of {}", names)
                   : fmt::format("no lab named '{}' is running; running are {}", name, names));
}

}  // namespace spillway::cli
