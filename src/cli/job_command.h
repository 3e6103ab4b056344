// SPDX-License-Identifier: Apache-2.0
//
// What `spillway job join` and `spillway job run` share: how a process of a job is started.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace spillway::cli {

inline constexpr std::uint32_t kMaxJobRanks = 4096;

// A port of loopback that nothing uses now, of those that Linux gives to no connection.
std::uint16_t free_port();

// For a process that joins the job of this ticket: alone for torch, until it is called in.
std::vector<std::pair<std::string, std::string>> newcomer_variables(const std::string& ticket,
                                                                    std::uint32_t local_rank);

// Becomes the command. Ends the process where that cannot be run.
[[noreturn]] void run_command(const std::vector<std::string>& command);

}  // namespace spillway::cli
