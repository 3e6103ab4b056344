// SPDX-License-Identifier: Apache-2.0
//
// How a lab changes the system: files under /proc, and system tools (ip, tc).
//
// A tool runs to its end in the calling thread's namespaces, with text on its standard input. It
// inherits `kept_fds` under their numbers, and nothing else. If it fails, its output becomes the
// error's message. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spillway::lab {

// Writes in one call, as the kernel requires.
base::Status write_proc_file(const std::string& path, std::string_view value);

// Searches PATH, then the folders where Debian keeps tools for root. The error names `package`.
base::Result<std::string> find_tool(std::string_view name, std::string_view package);

base::Status run_tool(const std::string& path, const std::vector<std::string>& arguments,
                      std::string_view input, std::span<const int> kept_fds = {});

}  // namespace spillway::lab
