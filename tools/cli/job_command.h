// SPDX-License-Identifier: Apache-2.0
//
// Helpers of `spillway job join` and `spillway job run` for starting processes of a job.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace spillway::cli {

inline constexpr std::uint32_t kMaxJobRanks = 4096;

// A loopback port that is free now, outside the range that Linux assigns to connections.
std::uint16_t free_port();

// Variables for a process that joins the job of this ticket. To torch it is alone until the job
// admits it.
std::vector<std::pair<std::string, std::string>> newcomer_variables(const std::string& ticket,
                                                                    std::uint32_t local_rank);

// Becomes the command, or ends the process if it cannot be run.
[[noreturn]] void run_command(const std::vector<std::string>& command);

}  // namespace spillway::cli
