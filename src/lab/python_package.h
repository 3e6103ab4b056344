// SPDX-License-Identifier: Apache-2.0
//
// Where the Python package and the library that belong to this tool are, so that ranks which
// `import spillway` find them without being told:
//
//   as built      the source tree's python/, up to four folders above the tool; lib/ beside bin/
//   as installed  PREFIX/lib/python3/dist-packages; PREFIX/lib, lib64 or lib/<architecture>
//
// Python finds what is installed under /usr by itself: naming its folder would put everything there
// before a virtual environment's own packages.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace spillway::lab {

// PYTHONPATH and SPILLWAY_LIBRARY, as "KEY=value", for the tool at that path; without what
// `environment` sets already, and without what is not there.
std::vector<std::string> python_variables(const std::filesystem::path& tool,
                                          const std::vector<std::string>& environment);

// Of this process.
std::filesystem::path path_of_this_tool();

}  // namespace spillway::lab
