// SPDX-License-Identifier: Apache-2.0
//
// Runs a system tool (ip, tc) to its end with text on its standard input. The tool runs in the
// calling thread's namespaces and inherits `kept_fds` under their numbers, and nothing else. What
// it says on standard error becomes the error's message.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spillway::lab {

// Looks in PATH, then where Debian keeps what only root usually needs. `package` is named in the
// error.
base::Result<std::string> find_tool(std::string_view name, std::string_view package);

base::Status run_tool(const std::string& path, const std::vector<std::string>& arguments,
                      std::string_view input, std::span<const int> kept_fds = {});

}  // namespace spillway::lab
