// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/text.h"
#include "base/version.h"
#include "tools/cli/commands.h"

namespace spillway::cli {
namespace {

// Large simulations touch more memory than the TLB covers: with huge pages they run up to 1.6 times
// as fast. glibc enables them only through the environment at process start, so the tool restarts
// itself with the request. Returns if tunables are already set or the restart fails; otherwise does
// not return.
void restart_with_huge_pages(char** argv) {
  // Respects tunables set by the user. They are set after the restart, so it happens once.
  if (getenv("GLIBC_TUNABLES") == nullptr &&
      setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 1) == 0) {
    execv("/proc/self/exe", argv);
  }
}

void add_nouns(CLI::App& app) {
  app.require_subcommand(1);
  add_codec(app);
  add_bench(app);
  add_doctor(app);
#ifdef SPILLWAY_HAVE_EMULATE
  add_emulate(app);
#endif
  add_env(app);
  add_fixup(app);
  add_job(app);
  add_lab(app);
  add_server(app);
  add_sim(app);
  add_switch(app);
  add_trace(app);
}

int run(int argc, char** argv) {
  CLI::App app("Gradients between training workers over ordinary, lossy Ethernet", "spillway");
  app.set_version_flag("--version", fmt::format("spillway {}", base::kVersion));
  app.footer(
      "Examples:\n"
      "  spillway codec --gradient FILE   compare all codecs on your gradient\n"
      "  spillway bench codec --json      speed and error of every codec\n"
      "  spillway sim run SCENARIO        flows over a simulated network\n"
      "  spillway switch attach --config  a trimming switch in the kernel, between interfaces\n"
      "  spillway switch run SCENARIO     the same in user space, or a whole fabric of them\n"
      "  spillway doctor                  is this host fit? and, with --peer, the path to another\n"
#ifdef SPILLWAY_HAVE_EMULATE
      "  spillway emulate show TRACE      check an execution trace, and show what it holds\n"
      "  spillway emulate simulate TRACE  how long it takes on a simulated network\n"
#endif
      "  spillway env                     every SPILLWAY_* variable with the value in force\n"
      "  spillway lab run -- COMMAND      a command on every host of an emulated network\n"
      "  spillway lab compare -- COMMAND  the same over TCP and over Spillway, as a table and a "
      "page\n"
      "  spillway trace -- COMMAND        the same, with a packet trace: every packet's path\n"
      "  spillway job status              members of a running elastic job\n"
      "  spillway server --workers 4      a parameter server of a job, beside its workers\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage.");
  add_nouns(app);
  // Runs before any command's work. `env` is exempt, because it shows what is wrong.
  app.parse_complete_callback([&app] {
    if (!app.got_subcommand("env")) {
      check_variables();
      warn_of_unknown_variables();
    }
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  } catch (const CommandError& error) {
    fmt::print(stderr, "spillway: {}\n", base::printable(error.what(), "\n"));
    return kExitFailure;
  } catch (const CommandExit& exit) {
    return exit.code;
  }
  return kExitOk;
}

}  // namespace
}  // namespace spillway::cli

int main(int argc, char** argv) {
  const bool simulates = std::any_of(argv, argv + argc, [](const char* word) {
    return std::string_view(word) == "sim" || std::string_view(word) == "simulate";
  });
  if (simulates) {
    spillway::cli::restart_with_huge_pages(argv);
  }
  return spillway::cli::run(argc, argv);
}
