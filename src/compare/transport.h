// SPDX-License-Identifier: Apache-2.0
//
// What one command is run over to be compared, and how the command is told:
//
//   tcp              {backend} is gloo
//   spillway-exact   {backend} is spillway, SPILLWAY_MODE=exact
//   spillway         {backend} is spillway, SPILLWAY_MODE=tolerant
//
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spillway::compare {

struct Transport {
  std::string name;
  std::string backend;                 // what torch.distributed calls it
  std::vector<std::string> variables;  // "KEY=value"
};

// "tcp,spillway": at least one, none twice. An error names those that are known.
base::Result<std::vector<Transport>> parse_transports(std::string_view names);

// `command` with {backend}, {transport} and {log} replaced wherever they stand in a word; all else
// is left alone.
std::vector<std::string> command_for(const std::vector<std::string>& command,
                                     const Transport& transport, const std::string& log);

// False: all runs would have the same words.
bool tells_transports_apart(const std::vector<std::string>& command);

}  // namespace spillway::compare
