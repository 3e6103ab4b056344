// SPDX-License-Identifier: Apache-2.0
//
// A scenario file that also says where its hosts are attached (`port` lines), for switches between
// real hosts. Throws CommandError, with the file's name.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fabric/emulator.h"
#include "sim/scenario.h"

namespace spillway::cli {

struct AttachedScenario {
  sim::Scenario scenario;
  std::vector<fabric::PortSpec> ports;  // one per host
};

AttachedScenario load_attached_scenario(const std::string& path,
                                        std::span<const std::string> overrides);

}  // namespace spillway::cli
