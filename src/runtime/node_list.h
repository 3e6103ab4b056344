// SPDX-License-Identifier: Apache-2.0
//
// Slurm's compressed lists: of nodes, "gnode[10,20-25,037],login1", where the digits of a range's
// first number say how wide its numbers are written, and where a name may have several brackets
// ("rack[1-2]n[01-04]", the last bracket turning fastest); and of tasks per node, "2(x3),1".
//
// Pure functions. Limit: a list of more than kMostNodes is an error, so that a few wrong characters
// cannot ask for gigabytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spillway::runtime {

inline constexpr std::size_t kMostNodes = 65536;

// In the order of the list; at least one.
base::Result<std::vector<std::string>> expand_node_list(std::string_view list);

// "2(x3),1" is 2, 2, 2, 1.
base::Result<std::vector<std::uint32_t>> expand_task_counts(std::string_view list);

}  // namespace spillway::runtime
