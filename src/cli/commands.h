// SPDX-License-Identifier: Apache-2.0
//
// `spillway <noun> <verb>`: one function per verb, each in the file of its name or
// of its noun's. It adds the verb
// with its options and an example to its noun; the verb's callback does the work and throws
// CommandError, or CLI11's own errors, when it cannot.
#pragma once

#include "cli/command_error.h"

namespace CLI {
class App;
}

namespace spillway::cli {

void add_bench_allreduce(CLI::App& bench);
void add_bench_codec(CLI::App& bench);
void add_bench_incast(CLI::App& bench);
void add_bench_sim(CLI::App& bench);
void add_bench_switch(CLI::App& bench);
void add_bench_transport(CLI::App& bench);
void add_bench_transport_core(CLI::App& bench);
void add_codec_tour(CLI::App& codec);
void add_doctor(CLI::App& app);
void add_fixup_attach(CLI::App& noun);
void add_fixup_detach(CLI::App& noun);
void add_fixup_stats(CLI::App& noun);
void add_lab_compare(CLI::App& lab);
void add_lab_down(CLI::App& lab);
void add_lab_exec(CLI::App& lab);
void add_lab_presets(CLI::App& lab);
void add_lab_ps(CLI::App& lab);
void add_lab_run(CLI::App& lab);
void add_lab_up(CLI::App& lab);
void add_ps(CLI::App& app);
void add_sim_run(CLI::App& sim);
void add_sim_soak(CLI::App& sim);
void add_switch_attach(CLI::App& noun);
void add_switch_detach(CLI::App& noun);
void add_switch_run(CLI::App& noun);
void add_switch_stats(CLI::App& noun);
void add_trace_run(CLI::App& noun);
void add_trace_switch(CLI::App& noun);

}  // namespace spillway::cli
