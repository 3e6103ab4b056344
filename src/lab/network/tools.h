// SPDX-License-Identifier: Apache-2.0
//
// How a lab changes what it made: files under /proc, and system tools (ip, tc).
//
// A tool runs to its end in the calling thread's namespaces, with text on its standard input. It
// inherits `kept_fds` under their numbers, and nothing else. What it says on standard error becomes
// the error's message. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spillway::lab {

// In one write, as the kernel wants it.
base::Status write_proc_file(const std::string& path, std::string_view value);

// Looks in PATH, then where Debian keeps what only root usually needs. `package` is named in the
// error.
base::Result<std::string> find_tool(std::string_view name, std::string_view package);

base::Status run_tool(const std::string& path, const std::vector<std::string>& arguments,
                      std::string_view input, std::span<const int> kept_fds = {});

}  // namespace spillway::lab
