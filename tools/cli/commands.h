// SPDX-License-Identifier: Apache-2.0
//
// `spillway <noun> <verb>`: one function per noun, in the file of its name. It adds the noun with
// its verbs, their options and examples. A verb's callback does the work; on failure it throws
// CommandError or CLI11's own errors. Large verbs of `bench`, `emulate`, `job`, `lab` and `sim`
// have files of their own.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/command_error.h"

namespace CLI {
class App;
}

namespace spillway::cli {

using bench::CommandError;
using bench::CommandExit;
using bench::kExitFailure;
using bench::kExitOk;
using bench::kExitUsage;
using bench::throw_unless_ok;
using bench::value_or_throw;

void add_bench(CLI::App& app);
void add_codec(CLI::App& app);
void add_doctor(CLI::App& app);
void add_emulate(CLI::App& app);
void add_env(CLI::App& app);
void add_fixup(CLI::App& app);
void add_job(CLI::App& app);
void add_lab(CLI::App& app);
void add_server(CLI::App& app);
void add_sim(CLI::App& app);
void add_switch(CLI::App& app);
void add_trace(CLI::App& app);

void add_bench_allreduce(CLI::App& bench);
void add_bench_codec(CLI::App& bench);
void add_bench_incast(CLI::App& bench);
void add_bench_switch(CLI::App& bench);
void add_bench_transport(CLI::App& bench);
void add_emulate_calibrate(CLI::App& emulate);
void add_emulate_convert(CLI::App& emulate);
void add_emulate_enter(CLI::App& emulate);
void add_emulate_run(CLI::App& emulate);
void add_emulate_simulate(CLI::App& emulate);
void add_emulate_stage(CLI::App& emulate);
void add_emulate_synthesize(CLI::App& emulate);
void add_job_run(CLI::App& job);
void add_lab_compare(CLI::App& lab);
void add_sim_allreduce(CLI::App& sim);
void add_sim_drill(CLI::App& sim);
void add_sim_soak(CLI::App& sim);

// Ends the tool with exit code 2 and a message if a SPILLWAY_* variable has an invalid value.
void check_variables();
// Names SPILLWAY_* variables that nothing reads on standard error.
void warn_of_unknown_variables();

// ------------------------------------------------------------------ starting processes

inline constexpr std::uint32_t kMaxJobRanks = 4096;

// Becomes the command, or ends the process if it cannot be run.
[[noreturn]] void run_command(const std::vector<std::string>& command);

// A loopback port that is free now, outside the range that Linux assigns to connections.
std::uint16_t free_port();

// Variables for a process that joins the job of this ticket. To torch it is alone until the job
// admits it.
std::vector<std::pair<std::string, std::string>> newcomer_variables(const std::string& ticket,
                                                                    std::uint32_t local_rank);

}  // namespace spillway::cli
