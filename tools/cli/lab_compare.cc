// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "lab/calibration.h"
#include "lab/compare/comparison.h"
#include "lab/compare/comparison_report.h"
#include "lab/compare/transport.h"
#include "lab/network/links.h"
#include "lab/rank_group.h"
#include "sim/scenario/scenario.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/lab_command.h"
#include "tools/cli/lab_compare_report.h"

namespace spillway::cli {
namespace {

// Progress of the current run, on standard error. On a terminal, one line that is redrawn and
// finally erased; elsewhere, one line at the start of a run and one at its end.
class CompareProgress {
 public:
  explicit CompareProgress(std::size_t runs);
  ~CompareProgress();
  CompareProgress(const CompareProgress&) = delete;
  CompareProgress& operator=(const CompareProgress&) = delete;

  void begin_run(const compare::Transport& transport);
  void end_run(const compare::RunRecord& run) const;
  void show(const compare::RunProgress& progress) const;
  // Erases the line so that something else can be printed.
  void clear() const;
  // Prints a line that stays.
  void tell(const std::string& line) const;

 private:
  std::size_t runs_;
  std::size_t run_ = 0;
  bool shown_;
};

// "[2/3] spillway  12 s  step 120  accuracy 71.2 %  queue 96 KiB  trimmed 1,234  lost 5"
std::string progress_line(std::size_t run, std::size_t runs, const compare::RunProgress& progress);

CompareProgress::CompareProgress(std::size_t runs)
    : runs_(runs), shown_(::isatty(STDERR_FILENO) == 1) {}

CompareProgress::~CompareProgress() {
  clear();
}

void CompareProgress::begin_run(const compare::Transport& transport) {
  ++run_;
  if (!shown_) {
    tell(fmt::format("{} runs", transport.name));
  }
}

// Prints "[2/3] spillway took 24 s, 61 steps of 312.5 ms (median)", or why the run failed.
void CompareProgress::end_run(const compare::RunRecord& run) const {
  if (!compare::went_well(run)) {
    clear();
    tell_of_failed_run(run);
    return;
  }
  std::string line =
      fmt::format("{} took {:.0f} s", run.transport.name, base::seconds_of(run.outcome.elapsed));
  if (const auto median = compare::percentile(compare::steady_step_times(run), 0.5); median) {
    line += fmt::format(", {} steps of {} (median)", compare::step_times(run).size(),
                        compare::value_text(compare::Unit::kMilliseconds, *median));
  }
  tell(line);
}

void CompareProgress::tell(const std::string& line) const {
  clear();
  fmt::print(stderr, "[{}/{}] {}\n", run_, runs_, line);
}

void CompareProgress::show(const compare::RunProgress& progress) const {
  if (shown_) {
    fmt::print(stderr, "\r\033[K{}", progress_line(run_, runs_, progress));
    std::fflush(stderr);
  }
}

void CompareProgress::clear() const {
  if (shown_) {
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
  }
}

std::string progress_line(std::size_t run, std::size_t runs, const compare::RunProgress& progress) {
  const compare::ProgressLog& log = progress.log;
  std::string line = fmt::format("[{}/{}] {}  {} s", run, runs, progress.transport.name,
                                 progress.sample.at.count() / 1'000'000'000);
  if (!log.steps.empty()) {
    line += fmt::format("  step {}", log.steps.back().step);
  }
  if (!log.evaluations.empty()) {
    line += fmt::format("  accuracy {:.1f} %", log.evaluations.back().accuracy * 100);
  }
  return line + fmt::format("  queue {} KiB  trimmed {}  lost {}",
                            progress.sample.queued_bytes / 1024,
                            compare::count_text(progress.sample.trimmed),
                            compare::count_text(progress.sample.lost));
}

constexpr std::size_t kMaxRounds = 1000;
// Limits on a run's duration without --limit: kFirstLimit until a run has finished, then
// kLimitOverFirst times that run's duration, at least kLeastLimit. --help states them, too.
constexpr base::Duration kFirstLimit = base::seconds(3600);
constexpr base::Duration kLeastLimit = base::seconds(600);
constexpr std::int64_t kLimitOverFirst = 10;

struct LabCompareOptions {
  NetworkOptions network;
  std::string transports = "tcp,spillway-exact,spillway-over-tcp,spillway";
  std::size_t rounds = 1;
  std::string target_accuracy;
  std::string out = "spillway-compare";
  double grace_seconds = 10.0;
  std::string limit_text;
  std::optional<base::Duration> limit;  // parsed limit_text
  bool json = false;
  std::vector<std::string> command;
};

lab::LabOptions lab_options_for(const LabCompareOptions& compared) {
  NetworkOptions network = compared.network;
  if (network.preset.empty() && network.scenario.empty()) {
    network.preset = "congested";
  }
  lab::LabOptions options = lab_options_of(network);
  options.grace = base::nanoseconds(static_cast<std::int64_t>(compared.grace_seconds * 1e9));
  return options;
}

// Checked before the first run, because a run that cannot start would spoil the whole comparison.
void check_tcp(const std::vector<compare::Transport>& transports) {
  for (const compare::Transport& transport : transports) {
    throw_unless_ok(lab::check_congestion_control(transport.tcp));
  }
}

// The longest time that a run may take; 0: unlimited.
base::Duration limit_for(const LabCompareOptions& options,
                         const std::vector<compare::RunRecord>& runs) {
  if (options.limit) {
    return *options.limit;
  }
  const auto finished = std::ranges::find_if(runs, compare::went_well);
  return finished == runs.end()
             ? kFirstLimit
             : std::max(kLeastLimit, finished->outcome.elapsed * kLimitOverFirst);
}

std::string advice_for(const compare::RunRecord& run, const compare::RunTask& task,
                       const LabCompareOptions& options, bool is_repeated) {
  if (!run.outcome.pace.fabric_kept_up()) {
    return remedy_for(options.network, task.options.scenario, run.outcome.pace);
  }
  return fmt::format("{}--rounds {} spreads such load over all transports",
                     is_repeated ? "the lab ran it twice; " : "", options.rounds + 2);
}

// A run in which the lab was late is meaningless and is repeated. So is one during which the host
// of a virtual machine was busy. If it still is, all runs share that, and a note says so.
compare::RunRecord run_on_time(const compare::RunTask& task, const compare::Transport& transport,
                               const LabCompareOptions& options, CompareProgress& progress) {
  compare::RunRecord run = compare::run_transport(task, transport);
  const auto is_off = [&run] { return compare::went_well(run) && !run.outcome.pace.kept_up(); };
  const bool is_repeated = is_off() && !options.network.allow_late;
  if (is_repeated) {
    progress.tell(run.outcome.pace.fabric_kept_up() ? "the host of this machine was busy: once more"
                                                    : "the lab was late: once more");
    run = compare::run_transport(task, transport);
  }
  if (!is_off()) {
    return run;
  }
  lab::Pace& pace = run.outcome.pace;
  pace.remedy = advice_for(run, task, options, is_repeated);
  if (!options.network.allow_late && !pace.fabric_kept_up()) {
    run.late = lab::pace_sentence(pace);
  }
  return run;
}

// The runs, or why they must start again.
struct Attempt {
  std::vector<compare::RunRecord> runs;  // of all transports that have run
  int interrupted_by = 0;
  std::optional<lab::Pace> late;  // pace of a run that needs a slower network
};

// Transports take turns, so that other load on the machine affects all of them. A failed run does
// not stop the others; an interrupt stops all, since the remaining runs would compare nothing.
Attempt run_all(const std::vector<compare::Transport>& transports, const LabCompareOptions& options,
                compare::RunTask task, bool can_be_slower) {
  CompareProgress progress(transports.size() * options.rounds);
  task.on_progress = [&progress](const compare::RunProgress& run) { progress.show(run); };
  Attempt attempt;
  for (task.round = 1; task.round <= options.rounds; ++task.round) {
    for (std::size_t i = 0; i < transports.size(); ++i) {
      progress.begin_run(transports[i]);
      task.options.limit = limit_for(options, attempt.runs);
      compare::RunRecord run = run_on_time(task, transports[i], options, progress);
      if (can_be_slower && !run.late.empty()) {
        attempt.late = run.outcome.pace;
        return attempt;
      }
      progress.end_run(run);
      attempt.interrupted_by = run.outcome.interrupted_by;
      (task.round == 1 ? attempt.runs : attempt.runs[i].later_rounds).push_back(std::move(run));
      if (attempt.interrupted_by != 0) {
        return attempt;
      }
    }
  }
  return attempt;
}

// If the machine became busier than during the trial, slows the network and repeats all runs, since
// they need the same network. That costs the time of all runs, so it happens once. Runs that are
// late afterwards are left out.
Attempt run_all_on_time(const std::vector<compare::Transport>& transports,
                        const LabCompareOptions& options, compare::RunTask& task) {
  scenario::Scenario& network = task.options.scenario;
  const bool can_be_slower = !has_fixed_rate(options.network) && scenario::can_be_dilated(network);
  Attempt attempt = run_all(transports, options, task, can_be_slower);
  if (!attempt.late) {
    return attempt;
  }
  const double slowdown = lab::slowdown_after(*attempt.late);
  network = scenario::dilated(network, slowdown);
  task.options.slowdown.machine *= slowdown;
  fmt::print(stderr, "spillway: the lab was late again, so all runs begin again with {}\n",
             slower_text(network, slowdown));
  return run_all(transports, options, task, false);
}

int worst_exit_code(const compare::Comparison& comparison) {
  int worst = kExitOk;
  for (const compare::RunRecord& run : comparison.runs) {
    for (const compare::RunRecord* round : compare::rounds_of(run)) {
      const int code = round->outcome.worst_exit_code();
      worst = std::max({worst, code, compare::went_well(*round) ? kExitOk : kExitFailure});
    }
  }
  return worst;
}

// Blocks signals: one that arrives between two runs ends the next at once, so that there is always
// a report. Returns the signal that ended the runs, or 0.
int run_and_write(const std::vector<compare::Transport>& transports,
                  const LabCompareOptions& options, compare::RunTask task,
                  compare::Comparison& comparison, CompareReport& report) {
  const lab::BlockedSignals blocked;
  Attempt attempt = run_all_on_time(transports, options, task);
  comparison.runs = std::move(attempt.runs);
  for (std::size_t i = comparison.runs.size(); i < transports.size(); ++i) {
    comparison.left_out.push_back(transports[i].name);
  }
  report = write_compare_report(task.folder, comparison,
                                compare::network_facts(task.options, transports));
  return attempt.interrupted_by;
}

void run(const LabCompareOptions& options) {
  compare::Comparison comparison;
  if (!options.target_accuracy.empty()) {
    comparison.wanted_accuracy =
        parsed("--target-accuracy", base::parse_fraction(options.target_accuracy));
  }
  const auto transports = parsed("--transports", compare::parse_transports(options.transports));
  lab::LabOptions lab_options = lab_options_for(options);
  check_tcp(transports);
  const std::filesystem::path folder = compare_folder(options.out);
  lab_options = on_time(std::move(lab_options), options.network);
  comparison.command = options.command;
  comparison.rounds = options.rounds;
  CompareReport report;
  const int interrupted_by = run_and_write(
      transports, options, {lab_options, options.command, folder, 1, {}}, comparison, report);
  if (options.json) {
    fmt::print("{}\n", report.json);
  } else {
    print_compare_report(comparison, report);
  }
  const int code = interrupted_by != 0 ? 128 + interrupted_by : worst_exit_code(comparison);
  if (code != kExitOk) {
    throw CommandExit{code};
  }
}

constexpr const char* kFooter =
    "COMMAND runs on every host, once per transport and round:\n"
    "  tcp                Gloo over TCP cubic, whatever this machine's default is\n"
    "  tcp-bbr            the same over TCP bbr\n"
    "  tcp-fp16           tcp with torch's fp16 hook around DistributedDataParallel\n"
    "  tcp-powersgd       tcp with torch's PowerSGD hook, of rank 1, from the third step on\n"
    "  spillway-exact     SPILLWAY_CODEC=exact\n"
    "  spillway-16        SPILLWAY_CODEC=planes, 16 bits per value\n"
    "  spillway           SPILLWAY_CODEC=planes, 5 bits per value, unless these variables are set\n"
    "  spillway-flat      the same as spillway, but no layer of a PyTorch model goes first\n"
    "  spillway-over-tcp  the same as spillway with SPILLWAY_CARRIER=tcp, over TCP cubic\n"
    "A PyTorch script needs nothing for it: the lab chooses what init_process_group() makes, puts\n"
    "hooks around models, and times optimizer steps. Other programs are told by their words:\n"
    "  {backend}    becomes gloo or spillway\n"
    "  {transport}  becomes the transport's name\n"
    "  {log}        becomes a file to which rank 0 may write its progress, a JSON object a line:\n"
    "    {\"event\":\"step\",\"step\":7,\"seconds\":1.25,\"step_ms\":80.5,\"loss\":0.7}\n"
    "    {\"event\":\"evaluation\",\"step\":50,\"seconds\":9.5,\"accuracy\":0.81}\n"
    "    {\"event\":\"end\"}\n"
    "PYTHONPATH and SPILLWAY_LIBRARY lead to the package of this tool unless they are set. The\n"
    "ranks' output goes to OUT/TRANSPORT.txt. A run that fails leaves the others alone. The exit "
    "code is\n"
    "that of the worst rank of all runs, 124 where a run was over its limit, 1 where it could not "
    "be\n"
    "made on time or at all; an interrupt ends it with 128 + the signal, behind the report so "
    "far.\n"
    "Examples:\n"
    "  spillway lab compare -- python3 train.py\n"
    "  spillway lab compare --preset incast --transports tcp,tcp-fp16,spillway-16 --rounds 3 \\\n"
    "      --target-accuracy 85% --out incast -- python3 train.py --log {log}\n"
    "  spillway lab compare --preset clean --loss 1% --json -- ./run.sh {transport}";

}  // namespace

void add_lab_compare(CLI::App& lab) {
  const auto options = std::make_shared<LabCompareOptions>();
  CLI::App* verb = lab.add_subcommand(
      "compare", "One command over TCP and over Spillway, on the same emulated network");
  verb->add_option("--transports", options->transports,
                   "Which, the first to compare the others with")
      ->capture_default_str();
  verb->add_option("--rounds", options->rounds,
                   "How often each runs; they take turns, and numbers are means")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, kMaxRounds));
  verb->add_option("--target-accuracy", options->target_accuracy,
                   "Time to it is compared: 85% or 0.85; default: what all runs reached");
  verb->add_option("--out", options->out, "Folder for report.html, report.json, logs and output")
      ->capture_default_str();
  verb->add_flag("--json", options->json, "Print JSON instead of a table");
  add_network_options(*verb, options->network);
  add_ranks_option(*verb, options->network);
  verb->remove_option(verb->get_option("--tcp"));  // each transport sets it
  verb->add_option("--grace", options->grace_seconds,
                   "Seconds the other ranks have to end when one fails")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  verb->add_option("--limit", options->limit_text,
                   "Longest time of a run, such as 900s, after which it counts as failed; 0: none. "
                   "Default: 3600s until one has finished, then 10 times what that took, at least "
                   "600s");
  verb->add_option("command", options->command, "Behind --: what every rank runs")->required();
  verb->footer(kFooter);
  verb->callback([options] {
    if (!options->limit_text.empty()) {
      options->limit = parsed("--limit", base::parse_duration(options->limit_text));
    }
    run(*options);
  });
}

}  // namespace spillway::cli
