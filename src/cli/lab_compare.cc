// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/units_text.h"
#include "cli/commands.h"
#include "cli/lab_command.h"
#include "cli/text_table.h"
#include "compare/comparison.h"
#include "compare/comparison_json.h"
#include "compare/notes.h"
#include "compare/page.h"
#include "compare/split.h"
#include "compare/transport.h"
#include "compare/transport_run.h"
#include "lab/calibration.h"
#include "lab/network/links.h"
#include "scenario/dilation.h"

namespace spillway::cli {
namespace {

std::vector<std::string> headings(const compare::Comparison& comparison) {
  std::vector<std::string> cells = {""};
  for (const compare::RunRecord& run : comparison.runs) {
    cells.push_back(run.transport.title);
    if (cells.size() > 2) {
      cells.emplace_back("ratio");
    }
  }
  return cells;
}

std::vector<std::string> row(const compare::Metric& metric) {
  std::vector<std::string> cells = {metric.label};
  for (std::size_t run = 0; run < metric.values.size(); ++run) {
    const auto& [value, ratio] = std::pair(metric.values[run], metric.ratios[run]);
    cells.push_back(value ? compare::value_text(metric.unit, *value) : "-");
    if (run > 0) {
      cells.push_back(ratio ? compare::ratio_text(*ratio) : "-");
    }
  }
  return cells;
}

// A row per metric, a column per run, ratios to the first beside the others.
TextTable compare_table(const compare::Comparison& comparison) {
  TextTable table(headings(comparison));
  for (const compare::Metric& metric : compare::metrics_of(comparison)) {
    table.add_row(row(metric));
  }
  return table;
}

std::string factor(const std::optional<double>& value) {
  return value ? compare::ratio_text(*value) : "-";
}

// How many times as fast as tcp, and by what.
TextTable split_table(const compare::GainSplit& split) {
  TextTable table({"times as fast as tcp", "gain", "by bits", "by transport", "by scheduling",
                   "same bits on TCP"});
  for (const compare::GainShare& share : split.shares) {
    table.add_row({share.title, factor(share.gain), factor(share.bits), factor(share.transport),
                   factor(share.scheduling), share.control});
  }
  return table;
}

constexpr std::size_t kMaxColumns = 4;

std::string cell(const std::vector<compare::Metric>& metrics, std::string_view key,
                 std::size_t run) {
  const auto metric = std::ranges::find(metrics, key, &compare::Metric::key);
  const std::optional<double>& value = metric->values[run];
  return value ? compare::value_text(metric->unit, *value) : "-";
}

// A row for each run, with the metrics that matter most. A terminal is too narrow for all metrics
// of many runs side by side; the page has them.
TextTable overview_table(const compare::Comparison& comparison) {
  TextTable table({"", "median step", "p99", "accuracy", "tenants", "gain", "by bits",
                   "by transport", "by scheduling"});
  const std::vector<compare::Metric> metrics = compare::metrics_of(comparison);
  const std::optional<compare::GainSplit> split = compare::split_of(comparison);
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    const compare::Transport& transport = comparison.runs[i].transport;
    std::vector<std::string> row = {
        transport.title, cell(metrics, "step_p50_ms", i), cell(metrics, "step_p99_ms", i),
        cell(metrics, "final_accuracy", i), cell(metrics, "tenant_share", i)};
    for (const compare::GainShare& share :
         split ? split->shares : std::vector<compare::GainShare>()) {
      if (share.name == transport.name) {
        row.insert(row.end(), {factor(share.gain), factor(share.bits), factor(share.transport),
                               factor(share.scheduling)});
      }
    }
    table.add_row(row);
  }
  return table;
}

// The run that is under way, on standard error. On a terminal, a line that renews itself and goes
// with the object; elsewhere a line when a run begins and one when it is over.
class CompareProgress {
 public:
  explicit CompareProgress(std::size_t runs);
  ~CompareProgress();
  CompareProgress(const CompareProgress&) = delete;
  CompareProgress& operator=(const CompareProgress&) = delete;

  void begin_run(const compare::Transport& transport);
  void end_run(const compare::RunRecord& run) const;
  void show(const compare::RunProgress& progress) const;
  // So that something else can be printed.
  void clear() const;
  // A line that stays.
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

// "[2/3] spillway took 24 s, 61 steps of 312.5 ms (median)".
void CompareProgress::end_run(const compare::RunRecord& run) const {
  std::string line =
      fmt::format("{} took {:.0f} s", run.transport.name, compare::seconds_of(run.outcome.elapsed));
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

namespace fs = std::filesystem;

// What is left in the folder, besides what ranks printed and logged.
struct CompareReport {
  fs::path page;     // report.html
  std::string json;  // of report.json
};

constexpr std::streamoff kMaxEndBytes = 8192;

void write_report_file(const fs::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (!file) {
    throw CommandError(
        fmt::format("cannot write {}: choose another folder with --out", path.string()));
  }
}

// Makes it where it is not there.
fs::path compare_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw CommandError(fmt::format("cannot make the folder {} ({}): choose another with --out",
                                   path, error.message()));
  }
  return fs::absolute(path).lexically_normal();
}

CompareReport write_compare_report(const fs::path& folder, const compare::Comparison& comparison,
                                   const std::vector<compare::Fact>& network) {
  CompareReport report;
  report.page = folder / "report.html";
  nlohmann::json json = compare::comparison_json(comparison, network);
  json["page"] = report.page.string();
  // Bytes of a command that are no text would make dump() throw.
  report.json = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  write_report_file(report.page, compare::comparison_page(comparison, network));
  write_report_file(folder / "report.json", report.json + "\n");
  return report;
}

// The last lines of a file, at most `lines` of them and a few kilobytes.
std::string end_of_file(const fs::path& path, std::size_t lines) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size <= 0) {
    return {};
  }
  const std::streamoff taken = std::min(size, kMaxEndBytes);
  std::string text(static_cast<std::size_t>(taken), '\0');
  file.seekg(size - taken);
  file.read(text.data(), taken);
  std::size_t begin = text.size();
  for (std::size_t i = 0; i <= lines && begin != std::string::npos && begin > 0; ++i) {
    begin = text.rfind('\n', begin - 1);
  }
  return begin == std::string::npos || begin == 0 ? text : text.substr(begin + 1);
}

constexpr std::size_t kMaxRounds = 1000;
constexpr int kMaxSlowdowns = 2;         // behind the first run
constexpr std::size_t kShownLines = 12;  // of what a failed run printed

struct LabCompareOptions {
  NetworkOptions network;
  std::string transports = "tcp,spillway-exact,spillway-over-tcp,spillway";
  std::size_t rounds = 1;
  std::string target_accuracy;
  std::string out = "spillway-compare";
  double grace_seconds = 10.0;
  bool json = false;
  std::vector<std::string> command;
};

// What an option means, or wrong usage.
template <typename T>
T option_or_throw(const char* option, base::Result<T> parsed) {
  if (!parsed.ok()) {
    throw CLI::ValidationError(option, parsed.status().message());
  }
  return std::move(parsed).value();
}

lab::LabOptions lab_options_for(const LabCompareOptions& compared) {
  NetworkOptions network = compared.network;
  if (network.preset.empty() && network.scenario.empty()) {
    network.preset = "congested";
  }
  lab::LabOptions options = lab_options_of(network);
  options.grace = base::nanoseconds(static_cast<std::int64_t>(compared.grace_seconds * 1e9));
  return options;
}

// Before the first run: one that cannot be made would take the others with it.
void check_tcp(const std::vector<compare::Transport>& transports) {
  for (const compare::Transport& transport : transports) {
    throw_unless_ok(lab::check_congestion_control(transport.tcp));
  }
}

void tell_of_failure(const compare::RunRecord& run) {
  fmt::print(stderr, "spillway: over {} the command failed with exit code {}; the end of {}:\n{}",
             run.transport.name, run.outcome.worst_exit_code(), run.output_path,
             end_of_file(run.output_path, kShownLines));
}

// An interrupt ends the comparison: what is left of it would compare nothing.
void check_run(const compare::RunRecord& run, const CompareProgress& progress) {
  if (run.outcome.interrupted_by != 0) {
    throw CommandExit{run.outcome.worst_exit_code()};
  }
  if (run.outcome.worst_exit_code() != kExitOk) {
    progress.clear();
    tell_of_failure(run);
  }
}

// Thrown where the lab was late in a run and when that was repeated.
struct LateRun {
  CommandError error;  // for a user who has to decide
};

CommandError late_error(const compare::RunRecord& run, const compare::RunTask& task) {
  const lab::Pace& pace = run.outcome.pace;
  const base::BitRate half = task.options.scenario.topology.rate / 2;
  return CommandError(fmt::format(
      "over {} the lab was late twice, so nothing is compared: frames left {:.0f} us late on "
      "average (up to {:.0f} is bearable), and the emulation lost {}. End other programs, or give "
      "--rate {}; --allow-late compares all the same",
      run.transport.name, pace.mean_late_us, pace.limit_us, pace.missed, lab::rate_option(half)));
}

// A run in which the lab was late says nothing: it is made once more. So is one during which the
// host of a virtual machine was busy; where it still is, all runs have that in common, and a note
// says so.
compare::RunRecord run_on_time(const compare::RunTask& task, const compare::Transport& transport,
                               bool allow_late, CompareProgress& progress) {
  compare::RunRecord run = value_or_throw(compare::run_transport(task, transport));
  const auto has_failed = [&run] { return run.outcome.worst_exit_code() != kExitOk; };
  if (allow_late || has_failed() || run.outcome.pace.kept_up()) {
    return run;
  }
  progress.tell(run.outcome.pace.fabric_kept_up() ? "the host of this machine was busy: once more"
                                                  : "the lab was late: once more");
  run = value_or_throw(compare::run_transport(task, transport));
  if (!has_failed() && !run.outcome.pace.fabric_kept_up()) {
    progress.clear();
    throw LateRun{late_error(run, task)};
  }
  return run;
}

// Transports take turns, so that what else the machine does meanwhile falls on all of them.
std::vector<compare::RunRecord> run_all(const std::vector<compare::Transport>& transports,
                                        std::size_t rounds, bool allow_late,
                                        compare::RunTask task) {
  CompareProgress progress(transports.size() * rounds);
  task.on_progress = [&progress](const compare::RunProgress& run) { progress.show(run); };
  std::vector<compare::RunRecord> runs;
  for (task.round = 1; task.round <= rounds; ++task.round) {
    for (std::size_t i = 0; i < transports.size(); ++i) {
      progress.begin_run(transports[i]);
      compare::RunRecord run = run_on_time(task, transports[i], allow_late, progress);
      check_run(run, progress);
      progress.end_run(run);
      (task.round == 1 ? runs : runs[i].repeats).push_back(std::move(run));
    }
  }
  return runs;
}

// A machine that became busier than it was in the trial gets a slower network, and all runs begin
// again on that: they must have the same.
std::vector<compare::RunRecord> run_all_on_time(const std::vector<compare::Transport>& transports,
                                                const LabCompareOptions& options,
                                                compare::RunTask& task) {
  scenario::Scenario& network = task.options.scenario;
  const bool is_fixed = has_fixed_rate(options.network) || !scenario::can_be_dilated(network);
  for (int slower = 0;; ++slower) {
    try {
      return run_all(transports, options.rounds, options.network.allow_late, task);
    } catch (const LateRun& late) {
      if (is_fixed || slower == kMaxSlowdowns) {
        throw late.error;
      }
      network = scenario::dilated(network, 2);
      fmt::print(stderr,
                 "spillway: the lab was late again, so all runs begin again with time twice as "
                 "slow: links of {}, delays and bursts twice as long, queues as they are\n",
                 lab::rate_option(network.topology.rate));
    }
  }
}

int worst_exit_code(const compare::Comparison& comparison) {
  int worst = kExitOk;
  for (const compare::RunRecord& run : comparison.runs) {
    for (const compare::RunRecord* round : compare::rounds_of(run)) {
      worst = std::max(worst, round->outcome.worst_exit_code());
    }
  }
  return worst;
}

void print(const LabCompareOptions& options, const compare::Comparison& comparison,
           const CompareReport& report) {
  if (options.json) {
    fmt::print("{}\n", report.json);
    return;
  }
  const std::optional<compare::GainSplit> split = compare::split_of(comparison);
  const bool is_wide = comparison.runs.size() > kMaxColumns;
  fmt::print("{}", (is_wide ? overview_table(comparison) : compare_table(comparison)).to_string());
  if (is_wide) {
    fmt::print("Tenants: the share of what others on the network would have got through alone.\n");
  }
  if (split) {
    fmt::print("\n{}{}\n\n", is_wide ? "" : split_table(*split).to_string(),
               compare::split_explanation(*split));
  }
  for (const std::string& note : compare::notes_of(comparison)) {
    fmt::print("Note: {}\n", note);
  }
  fmt::print("Page: {}\n", report.page.string());
}

void run(const LabCompareOptions& options) {
  compare::Comparison comparison;
  if (!options.target_accuracy.empty()) {
    comparison.wanted_accuracy =
        option_or_throw("--target-accuracy", base::parse_fraction(options.target_accuracy));
  }
  const auto transports =
      option_or_throw("--transports", compare::parse_transports(options.transports));
  lab::LabOptions lab_options = lab_options_for(options);
  check_tcp(transports);
  const std::filesystem::path folder = compare_folder(options.out);
  lab_options = on_time(std::move(lab_options), options.network);
  comparison.command = options.command;
  comparison.rounds = options.rounds;
  compare::RunTask task = {lab_options, options.command, folder, 1, {}};
  comparison.runs = run_all_on_time(transports, options, task);
  print(options, comparison,
        write_compare_report(folder, comparison, compare::network_facts(task.options, transports)));
  if (const int worst = worst_exit_code(comparison); worst != kExitOk) {
    throw CommandExit{worst};
  }
}

constexpr const char* kFooter =
    "COMMAND runs on every host, once per transport and round:\n"
    "  tcp                Gloo over TCP cubic, whatever this machine's default is\n"
    "  tcp-bbr            the same over TCP bbr\n"
    "  tcp-fp16           tcp with torch's fp16 hook around DistributedDataParallel\n"
    "  tcp-powersgd       tcp with torch's PowerSGD hook, of rank 1, from the third step on\n"
    "  spillway-exact     SPILLWAY_MODE=exact\n"
    "  spillway-16        SPILLWAY_MODE=tolerant, 16 bits per value\n"
    "  spillway           SPILLWAY_MODE=tolerant, with 5 bits unless SPILLWAY_PRECISION says\n"
    "  spillway-flat      the same with SPILLWAY_PRIORITY=0: no layer goes first\n"
    "  spillway-over-tcp  the same as spillway with SPILLWAY_CARRIER=tcp, over TCP cubic\n"
    "A PyTorch script needs nothing for it: the lab chooses what init_process_group() makes, puts\n"
    "hooks around models, and times optimizer steps. Other programs are told by their words:\n"
    "  {backend}    becomes gloo or spillway\n"
    "  {transport}  becomes the transport's name\n"
    "  {log}        becomes a file to which rank 0 may write its progress, a JSON object a line:\n"
    "    {\"event\":\"step\",\"step\":7,\"seconds\":1.25,\"step_ms\":80.5,\"loss\":0.7}\n"
    "    {\"event\":\"evaluation\",\"step\":50,\"seconds\":9.5,\"accuracy\":0.81}\n"
    "    {\"event\":\"end\"}\n"
    "PYTHONPATH and SPILLWAY_LIBRARY lead to the package of this tool unless they are set. What\n"
    "ranks print goes to OUT/TRANSPORT.txt. The exit code is that of the worst rank of all runs.\n"
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
  verb->remove_option(verb->get_option("--tcp"));  // a transport says which
  verb->add_option("--grace", options->grace_seconds,
                   "Seconds the other ranks have to end when one fails")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  verb->add_option("command", options->command, "Behind --: what every rank runs")->required();
  verb->footer(kFooter);
  verb->callback([options] { run(*options); });
}

}  // namespace spillway::cli
