// SPDX-License-Identifier: Apache-2.0
//
// `spillway emulate stage`: runs a training script as a few real ranks of a large world. `spillway
// emulate enter`: turns a process that a launcher started into one of these ranks.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/text.h"
#include "emulate/stage/arrivals.h"
#include "emulate/stage/stage_durations.h"
#include "emulate/stage/stage_protocol.h"
#include "emulate/trace/graph.h"
#include "emulate/trace/reader.h"
#include "launch/launch.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/emulate_options.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

struct EmulateStageOptions {
  EmulateNetworkOptions network;
  std::uint32_t world = 0;
  std::vector<std::uint32_t> real;
  std::string table;
  std::string trace;
  std::vector<std::string> slow;
  bool no_spread = false;
  std::uint64_t seed = 1;
  std::string patience = "300s";
  bool strict = false;
  EmulateLabOptions lab;
  bool launcher = false;
  std::string report;
  std::vector<std::string> command;
};

constexpr base::Duration kEnterPatience = base::seconds(10);

emulate::StageConfig stage_config(const EmulateStageOptions& options) {
  emulate::StageConfig config;
  config.world = options.world;
  config.real = options.real;
  std::sort(config.real.begin(), config.real.end());
  config.patience = parsed("--patience", base::parse_duration(options.patience));
  if (config.patience < base::milliseconds(100)) {
    throw CLI::ValidationError("--patience", "must be a time of 100ms or more");
  }
  config.learns_spread = !options.no_spread;
  config.seed = options.seed;
  check_option("--real", emulate::validate_stage(config));
  check_ranks("--slow", options.slow, config.world);
  for (const std::string& text : options.slow) {
    const auto [rank, factor] = rank_and_factor("--slow", text);
    config.slow.push_back({rank, factor});
  }
  check_option("--slow", emulate::validate_stage(config));
  return config;
}

emulate::MeasuredTable read_table(const std::string& path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) {
    throw CommandError(fmt::format("--table: cannot read {}", path));
  }
  const base::Result<emulate::MeasuredTable> table = emulate::parse_table(text);
  if (!table.ok()) {
    throw CommandError(fmt::format("--table {}: {}", path, table.status().message()));
  }
  return *table;
}

// Simulates the trace in virtual time on the network's flows.
emulate::TraceArrivals arrivals_of(const EmulateStageOptions& options,
                                   const emulate::StageConfig& config) {
  const emulate::World world = value_or_throw(emulate::read_world(options.trace, {}));
  if (world.size() != config.world) {
    throw CLI::ValidationError(
        "--trace", fmt::format("{} has {} ranks, not {}: give --world {}", options.trace,
                               world.size(), config.world, world.size()));
  }
  const emulate::FabricPaths paths = paths_of(options.network, world.size());
  const emulate::Matches meetings(world);
  emulate::FlowModel model(world, paths, flow_options_of(options.network));
  emulate::GraphRunOptions run_options;
  run_options.keeps_times = true;
  const emulate::GraphRunResult run = emulate::GraphRun(world, meetings, model, run_options).run();
  throw_unless_ok(run.status);
  return emulate::TraceArrivals(world, run, config.real);
}

// ------------------------------------------------------------------ processes

// A folder for the socket, removed with this object.
class StageFolder {
 public:
  StageFolder() {
    std::string made = (std::filesystem::temp_directory_path() / "spillway-stage-XXXXXX").string();
    if (::mkdtemp(made.data()) == nullptr) {
      throw CommandError(fmt::format("cannot make a folder like {}", made));
    }
    folder_ = made;
  }
  ~StageFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  StageFolder(const StageFolder&) = delete;
  StageFolder& operator=(const StageFolder&) = delete;

  std::string socket() const { return (folder_ / "socket").string(); }

 private:
  std::filesystem::path folder_;
};

using StageVariables = std::vector<std::pair<std::string, std::string>>;

// The child ends with this process.
pid_t start_child(const std::vector<std::string>& command, const StageVariables& variables) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    throw CommandError("cannot start a process: " + std::generic_category().message(errno));
  }
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) {
      ::_exit(kExitFailure);
    }
    for (const auto& [name, value] : variables) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
    run_command(command);
  }
  return child;
}

std::vector<pid_t> start_here(const EmulateStageOptions& options,
                              const emulate::StageConfig& config, const std::string& socket) {
  const std::string port = std::to_string(free_port());
  std::vector<pid_t> children;
  for (std::size_t i = 0; i < config.real.size(); ++i) {
    children.push_back(
        start_child(options.command, {{"SPILLWAY_STAGE", socket},
                                      {"RANK", std::to_string(config.real[i])},
                                      {"WORLD_SIZE", std::to_string(config.world)},
                                      {"LOCAL_RANK", std::to_string(i)},
                                      {"LOCAL_WORLD_SIZE", std::to_string(config.real.size())},
                                      {"MASTER_ADDR", "127.0.0.1"},
                                      {"MASTER_PORT", port}}));
  }
  return children;
}

// Starts one lab host per real rank.
pid_t start_in_lab(const EmulateStageOptions& options, const emulate::StageConfig& config,
                   const std::string& socket) {
  EmulateLabOptions lab = options.lab;
  lab.words.insert(lab.words.end(), {"--env", "SPILLWAY_STAGE=" + socket});
  std::vector<std::string> entering = {own_program(), "emulate", "enter", "--"};
  entering.insert(entering.end(), options.command.begin(), options.command.end());
  return start_child(lab_command(lab, config.real.size(), entering), {});
}

std::vector<pid_t> start_real(const EmulateStageOptions& options,
                              const emulate::StageConfig& config, const std::string& socket) {
  if (!options.lab.preset.empty()) {
    return {start_in_lab(options, config, socket)};
  }
  return options.launcher ? std::vector{start_child(options.command, {{"SPILLWAY_STAGE", socket}})}
                          : start_here(options, config, socket);
}

// True if all ended well.
bool wait_for(const std::vector<pid_t>& children) {
  bool is_well = true;
  for (const pid_t child : children) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    is_well &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return is_well;
}

// ------------------------------------------------------------------ what is said of it

json rank_json(std::uint32_t rank, const emulate::RankSummary& summary) {
  return {{"rank", rank},
          {"waits", summary.waits},
          {"late_p50_us", summary.late_p50_us},
          {"late_p99_us", summary.late_p99_us},
          {"late_us", summary.late_us},
          {"reads", summary.reads}};
}

double own_memory_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

json shape_json(const emulate::CollectiveShape& shape) {
  return {{"kind", chakra::collective_kind_name(shape.kind)},
          {"ranks", shape.ranks},
          {"stride", shape.stride},
          {"bytes", shape.bytes}};
}

json stage_json(const emulate::Stage& stage, const emulate::StageProtocol& protocol,
                const std::vector<std::string>& uncovered) {
  json ranks = json::array();
  for (const auto& [rank, summary] : protocol.summaries()) {
    ranks.push_back(rank_json(rank, summary));
  }
  const emulate::StageTotals& totals = stage.totals();
  json shapes = json::array();
  for (const auto& [shape, calls] : totals.shapes) {
    shapes.push_back(shape_json(shape));
    shapes.back()["calls"] = calls;
  }
  json at_once = json::array();
  for (const emulate::CollectiveShape& shape : totals.at_once) {
    at_once.push_back(shape_json(shape));
  }
  return {{"world", stage.config().world},
          {"real", stage.config().real},
          {"collectives", totals.collectives},
          {"messages", totals.messages},
          {"failures", totals.failures},
          {"modelled_us", base::microseconds_of(totals.duration)},
          {"waited_virtual_us", base::microseconds_of(totals.waited_virtual)},
          {"ranks", ranks},
          {"shapes", shapes},
          {"at_once", at_once},
          {"held_mib", static_cast<double>(protocol.settings().memory_bytes) / (1 << 20)},
          {"not_in_table", uncovered},
          {"stage_mib", own_memory_mib()}};
}

void print_stage(const json& report) {
  fmt::print(stderr,
             "spillway: {} of {} ranks were real: {} collectives of {:.3f} ms as modelled, {} "
             "messages; {:.3f} ms more for virtual ranks that came later\n",
             report["real"].size(), report["world"].get<std::uint32_t>(),
             report["collectives"].get<std::uint64_t>(),
             report["modelled_us"].get<double>() / 1000.0, report["messages"].get<std::uint64_t>(),
             report["waited_virtual_us"].get<double>() / 1000.0);
  if (const auto held = report["held_mib"].get<double>(); held > 0) {
    fmt::print(stderr, "spillway: each real rank held {:.1f} MiB for the library's virtual peers\n",
               held);
  }
  for (const json& what : report["not_in_table"]) {
    fmt::print(stderr, "spillway: not in the table, and modelled: {}\n",
               base::printable(what.get<std::string>()));
  }
  for (const json& rank : report["ranks"]) {
    fmt::print(stderr, "spillway: rank {}: {} waits, late by {:.1f} us at the median, {:.1f} p99\n",
               rank["rank"].get<std::uint32_t>(), rank["waits"].get<std::uint64_t>(),
               rank["late_p50_us"].get<double>(), rank["late_p99_us"].get<double>());
  }
}

// ------------------------------------------------------------------ the verbs

void run_stage(const EmulateStageOptions& options) {
  const emulate::StageConfig config = stage_config(options);
  emulate::FlowDurations flows(config.world, paths_of(options.network, config.world),
                               flow_options_of(options.network));
  std::optional<emulate::MeasuredDurations> measured;
  emulate::StageSettings terms{.is_strict = options.strict};
  if (!options.table.empty()) {
    const emulate::MeasuredTable table = read_table(options.table);
    measured.emplace(table, flows);
    if (table.memory && table.memory->real == config.real) {
      terms.memory_bytes = table.memory->bytes;
    }
  }
  emulate::StageDurations& durations =
      measured ? static_cast<emulate::StageDurations&>(*measured) : flows;
  std::optional<emulate::TraceArrivals> arrivals;
  if (!options.trace.empty()) {
    arrivals.emplace(arrivals_of(options, config));
  }
  emulate::Stage stage(config, durations, arrivals ? &*arrivals : nullptr);
  emulate::StageProtocol protocol(stage, terms);
  const StageFolder folder;
  auto server = value_or_throw(emulate::StageServer::start(folder.socket(), protocol, stage));
  const bool is_well = wait_for(start_real(options, config, folder.socket()));
  server.reset();
  const json report = stage_json(stage, protocol,
                                 measured ? std::vector<std::string>(measured->uncovered().begin(),
                                                                     measured->uncovered().end())
                                          : std::vector<std::string>());
  print_stage(report);
  if (!options.report.empty()) {
    write_output(options.report, report.dump(2) + "\n", "--report: ");
  }
  if (!is_well) {
    throw CommandExit{kExitFailure};
  }
}

void enter_stage(const std::vector<std::string>& command) {
  const base::Environment environment = base::Environment::of_process();
  const std::string socket = environment.text("SPILLWAY_STAGE");
  if (socket.empty()) {
    throw CommandError("SPILLWAY_STAGE is not set: `spillway emulate stage` sets it");
  }
  const emulate::StagedWorld staged = value_or_throw(emulate::query_stage(socket, kEnterPatience));
  const launch::Launch launch = value_or_throw(launch::launch_from_environment(environment));
  if (launch.world != staged.real.size()) {
    throw CommandError(fmt::format("the launcher started {} processes, the stage has {} real ranks",
                                   launch.world, staged.real.size()));
  }
  // Further variables that torch needs, unless the launcher has set them already.
  const auto outline = value_or_throw(launch::outline_of_launch(environment));
  if (outline && !outline->store.host.empty()) {
    ::setenv("MASTER_ADDR", outline->store.host.c_str(), 0);
    ::setenv("MASTER_PORT", std::to_string(outline->store.port).c_str(), 0);
  }
  ::setenv("LOCAL_RANK", std::to_string(launch.local_rank).c_str(), 0);
  ::setenv("LOCAL_WORLD_SIZE", std::to_string(launch.local_world).c_str(), 0);
  ::setenv("RANK", std::to_string(staged.real[launch.rank]).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(staged.world).c_str(), 1);
  run_command(command);
}

void add_stage_options(CLI::App& command, EmulateStageOptions& options) {
  command.add_option("--world", options.world, "Ranks of the job")
      ->required()
      ->check(whole_number(1, chakra::kMaxTraceRanks));
  command.add_option("--real", options.real, "Those that are processes: 0,1")
      ->required()
      ->delimiter(',')
      ->check(whole_number(0, UINT32_MAX));
  command.add_option("--table", options.table,
                     "Durations that `spillway emulate calibrate` measured; else the network's");
  command.add_option("--trace", options.trace,
                     "Traces of the job, by prefix: virtual ranks come when these say");
  command
      .add_option("--slow", options.slow,
                  "RANK=FACTOR: a virtual rank whose computing takes so much longer")
      ->allow_extra_args(false);
  command.add_flag("--no-spread", options.no_spread,
                   "Virtual ranks come with the last real one, not apart as real ones do");
  command.add_option("--seed", options.seed, "Seed of all random draws")
      ->capture_default_str()
      ->check(any_seed());
  command.add_option("--patience", options.patience, "Timeout for late real ranks")
      ->capture_default_str();
  command.add_flag("--strict", options.strict,
                   "A script that reads values in which virtual ranks had a part fails");
  add_lab_options(command, options.lab, "Real ranks are hosts of");
  command.add_flag("--launcher", options.launcher,
                   "The command starts the real ranks itself, each with `spillway emulate enter`");
  command.add_option("--report", options.report, "Write what was staged here, as JSON");
}

}  // namespace

void add_emulate_stage(CLI::App& noun) {
  const auto options = std::make_shared<EmulateStageOptions>();
  CLI::App* command =
      noun.add_subcommand("stage", "A training script as a few real ranks of a world of thousands");
  add_stage_options(*command, *options);
  add_network_options(*command, options->network);
  command->add_option("COMMAND", options->command, "The script, with Spillway's backend")
      ->required();
  command->positionals_at_end();
  command->footer(
      "Exit codes: 0 all real ranks ended well, 1 one did not, 2 wrong usage.\n"
      "Examples:\n"
      "  spillway emulate stage --world 1024 --real 0,1 --rate 400gbit -- python3 train.py\n"
      "  spillway emulate stage --world 8 --real 0,1 --table clean8.json --preset clean -- "
      "python3 train.py");
  command->callback([options] { run_stage(*options); });
}

void add_emulate_enter(CLI::App& noun) {
  const auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* command =
      noun.add_subcommand(
              "enter", "Runs a command as the real rank that a stage has for this launched process")
          ->group("");
  command->add_option("COMMAND", *words, "The script, with Spillway's backend")->required();
  command->positionals_at_end();
  command->footer(
      "SPILLWAY_STAGE names the stage, the launcher says which of its real ranks this is.\n"
      "Example:\n"
      "  spillway emulate stage --world 64 --real 0,1 --launcher -- mpirun -n 2 spillway emulate "
      "enter -- python3 train.py");
  command->callback([words] { enter_stage(*words); });
}

}  // namespace spillway::cli
