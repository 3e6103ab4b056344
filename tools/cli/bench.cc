// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "tools/cli/commands.h"

namespace spillway::cli {

void add_bench(CLI::App& app) {
  CLI::App* noun = app.add_subcommand("bench", "Measure, against a limit taken in the same run");
  noun->require_subcommand(1);
  noun->footer("Example:\n  spillway bench codec --quick");
  add_bench_allreduce(*noun);
  add_bench_checks(*noun);
  add_bench_codec(*noun);
  add_bench_entropy(*noun);
  add_bench_incast(*noun);
  add_bench_sim(*noun);
  add_bench_switch(*noun);
  add_bench_transport(*noun);
  add_bench_transport_core(*noun);
}

}  // namespace spillway::cli
