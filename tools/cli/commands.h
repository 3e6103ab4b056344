// SPDX-License-Identifier: Apache-2.0
//
// `spillway <noun> <verb>`: one function per noun, in the file of its name. It adds the noun with
// its verbs, their options and examples. A verb's callback does the work; on failure it throws
// CommandError or CLI11's own errors. The verbs of `bench`, and some of `emulate`, `job`, `lab` and
// `sim`, have files of their own.
#pragma once

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
void add_ps(CLI::App& app);
void add_sim(CLI::App& app);
void add_switch(CLI::App& app);
void add_trace(CLI::App& app);

void add_bench_allreduce(CLI::App& bench);
void add_bench_checks(CLI::App& bench);
void add_bench_codec(CLI::App& bench);
void add_bench_entropy(CLI::App& bench);
void add_bench_incast(CLI::App& bench);
void add_bench_sim(CLI::App& bench);
void add_bench_switch(CLI::App& bench);
void add_bench_transport(CLI::App& bench);
void add_bench_transport_core(CLI::App& bench);
void add_emulate_convert(CLI::App& emulate);
void add_emulate_merge(CLI::App& emulate);
void add_emulate_run(CLI::App& emulate);
void add_emulate_simulate(CLI::App& emulate);
void add_emulate_synthesize(CLI::App& emulate);
void add_emulate_calibrate(CLI::App& noun);
void add_emulate_enter(CLI::App& noun);
void add_emulate_stage(CLI::App& noun);
void add_emulate_timers(CLI::App& emulate);
void add_job_run(CLI::App& job);
void add_lab_compare(CLI::App& lab);
void add_sim_drill(CLI::App& sim);
void add_sim_jobs(CLI::App& sim);
void add_sim_soak(CLI::App& sim);

// Ends the tool with exit code 2 and a message if a SPILLWAY_* variable has an invalid value.
void check_variables();

}  // namespace spillway::cli
