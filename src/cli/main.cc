// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <string_view>

#include "base/version.h"
#include "cli/commands.h"
#include "cli/huge_pages.h"

namespace spillway::cli {
namespace {

void add_nouns(CLI::App& app) {
  app.require_subcommand(1);
  CLI::App* codec = app.add_subcommand("codec", "Gradient encodings whose packets can be cut");
  codec->require_subcommand(1);
  codec->footer("Example:\n  spillway codec tour");
  add_codec_tour(*codec);
  CLI::App* bench = app.add_subcommand("bench", "Measure, against a limit taken in the same run");
  bench->require_subcommand(1);
  bench->footer("Example:\n  spillway bench codec --quick");
  add_bench_allreduce(*bench);
  add_bench_codec(*bench);
  add_bench_incast(*bench);
  add_bench_sim(*bench);
  add_bench_switch(*bench);
  add_bench_transport(*bench);
  add_bench_transport_core(*bench);
  add_doctor(app);
  CLI::App* fixup = app.add_subcommand(
      "fixup", "Repairs, at a receiver, packets that a switch cut and left with stale lengths");
  fixup->require_subcommand(1);
  fixup->footer("Example:\n  sudo spillway fixup attach --interface eth0");
  add_fixup_attach(*fixup);
  add_fixup_detach(*fixup);
  add_fixup_stats(*fixup);
  CLI::App* lab =
      app.add_subcommand("lab", "A network on this machine: hosts, links and switches, emulated");
  lab->require_subcommand(1);
  lab->footer("Example:\n  spillway lab run --preset incast -- python3 train.py");
  add_lab_compare(*lab);
  add_lab_down(*lab);
  add_lab_exec(*lab);
  add_lab_presets(*lab);
  add_lab_ps(*lab);
  add_lab_run(*lab);
  add_lab_up(*lab);
  add_ps(app);
  CLI::App* sim = app.add_subcommand("sim", "Networks, hosts and flows, simulated");
  sim->require_subcommand(1);
  sim->footer("Example:\n  spillway sim run tests/scenarios/incast_trim.scn");
  add_sim_run(*sim);
  add_sim_soak(*sim);
  CLI::App* fabric = app.add_subcommand("switch", "A trimming switch on this machine");
  fabric->require_subcommand(1);
  fabric->footer("Example:\n  spillway switch run tests/scenarios/relay.scn");
  add_switch_attach(*fabric);
  add_switch_detach(*fabric);
  add_switch_run(*fabric);
  add_switch_stats(*fabric);
  CLI::App* trace = app.add_subcommand("trace", "Follows single packets, as a Chrome trace");
  trace->require_subcommand(1);
  trace->footer("Example:\n  sudo spillway trace run --preset incast -- python3 train.py");
  add_trace_run(*trace);
  add_trace_switch(*trace);
}

int run(int argc, char** argv) {
  CLI::App app("Gradients between training workers over ordinary, lossy Ethernet", "spillway");
  app.set_version_flag("--version", fmt::format("spillway {}", base::kVersion));
  app.footer(
      "Examples:\n"
      "  spillway codec tour              what a cut packet costs, as a table and a page\n"
      "  spillway bench codec --json      speed and error of every codec\n"
      "  spillway sim run SCENARIO        flows over a simulated network\n"
      "  spillway switch attach --config  a trimming switch in the kernel, between interfaces\n"
      "  spillway switch run SCENARIO     the same in user space, or a whole fabric of them\n"
      "  spillway doctor                  is this host fit? and, with --peer, the way to another\n"
      "  spillway lab run -- COMMAND      a command on every host of an emulated network\n"
      "  spillway lab compare -- COMMAND  the same over TCP and over Spillway, as a table and a "
      "page\n"
      "  spillway ps --workers 4          a parameter server of a job, beside its workers\n"
      "  spillway trace run -- COMMAND    the same, with every packet's way as a Chrome trace\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage.");
  add_nouns(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  } catch (const CommandError& error) {
    fmt::print(stderr, "spillway: {}\n", error.what());
    return kExitFailure;
  } catch (const CommandExit& exit) {
    return exit.code;
  }
  return kExitOk;
}

}  // namespace
}  // namespace spillway::cli

int main(int argc, char** argv) {
  const bool simulates = std::any_of(
      argv, argv + argc, [](const char* word) { return std::string_view(word) == "sim"; });
  if (simulates) {
    spillway::cli::restart_with_huge_pages(argv);
  }
  return spillway::cli::run(argc, argv);
}
