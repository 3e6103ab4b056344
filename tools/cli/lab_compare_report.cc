// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/lab_compare_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <optional>
#include <ranges>
#include <string_view>
#include <system_error>
#include <utility>

#include "lab/compare/comparison.h"
#include "lab/compare/comparison_report.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

// ------------------------------------------------------------------ the table

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

std::string result_of(const compare::RunRecord& run) {
  const compare::RunRecord* failed = compare::first_failed_round(run);
  return compare::result_text(failed == nullptr ? run : *failed);
}

std::vector<std::string> result_row(const compare::Comparison& comparison) {
  std::vector<std::string> cells = {"result"};
  for (const compare::RunRecord& run : comparison.runs) {
    cells.push_back(result_of(run));
    if (cells.size() > 2) {
      cells.emplace_back("");
    }
  }
  return cells;
}

// A row per metric and a column per run, with ratios to the first run.
TextTable compare_table(const compare::Comparison& comparison) {
  TextTable table(headings(comparison));
  for (const compare::Metric& metric : compare::metrics_of(comparison)) {
    table.add_row(row(metric));
  }
  if (compare::has_failures(comparison)) {
    table.add_row(result_row(comparison));
  }
  return table;
}

std::string factor(const std::optional<double>& value) {
  return value ? compare::ratio_text(*value) : "-";
}

// Each transport's speed relative to the faster TCP, and where the gain comes from.
TextTable split_table(const compare::GainSplit& split) {
  TextTable table({fmt::format("times as fast as {}", split.baseline), "gain", "by bits",
                   "by transport", "by scheduling", "same bits on TCP"});
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

// A row per run with the most important metrics. A terminal is too narrow for all metrics of many
// runs side by side; the page has them. After a few steps the accuracy would only tell how many
// steps a run took.
TextTable overview_table(const compare::Comparison& comparison) {
  std::vector<std::string> columns = {"",        "median step",    "p99",
                                      "tenants", "tenants' bytes", "gain",
                                      "by bits", "by transport",   "by scheduling"};
  const bool shows_accuracy = compare::accuracy_is_comparable(comparison);
  if (shows_accuracy) {
    columns.insert(columns.begin() + 3, "accuracy");
  }
  const bool tells_results = compare::has_failures(comparison);
  if (tells_results) {
    columns.insert(columns.begin() + 1, "result");
  }
  TextTable table(columns);
  const std::vector<compare::Metric> metrics = compare::metrics_of(comparison);
  const std::optional<compare::GainSplit> split = compare::split_of(comparison);
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    const compare::Transport& transport = comparison.runs[i].transport;
    std::vector<std::string> row = {
        transport.title, cell(metrics, "step_p50_ms", i), cell(metrics, "step_p99_ms", i),
        cell(metrics, "tenant_share", i), cell(metrics, "tenant_bytes", i)};
    if (shows_accuracy) {
      row.insert(row.begin() + 3, cell(metrics, "final_accuracy", i));
    }
    if (tells_results) {
      row.insert(row.begin() + 1, result_of(comparison.runs[i]));
    }
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

// ------------------------------------------------------------------ a run that failed

constexpr std::streamoff kSearchedBytes = 1 << 20;  // of the ranks' output, from its end
constexpr std::size_t kShownLines = 12;
constexpr std::size_t kShownBytes = 8192;

std::string end_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size <= 0) {
    return {};
  }
  const std::streamoff taken = std::min(size, kSearchedBytes);
  std::string text(static_cast<std::size_t>(taken), '\0');
  file.seekg(size - taken);
  file.read(text.data(), taken);
  return text;
}

// The last lines of `text` for which `wanted` is true.
template <typename Wanted>
std::string last_lines(std::string_view text, Wanted wanted) {
  std::vector<std::string_view> lines;
  std::size_t bytes = 0;
  while (!text.empty() && lines.size() < kShownLines && bytes < kShownBytes) {
    text.remove_suffix(text.ends_with('\n') ? 1 : 0);
    const std::size_t before = text.rfind('\n');
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    if (const std::string_view line = text.substr(begin); wanted(line)) {
      lines.push_back(line.substr(0, kShownBytes));
      bytes += line.size();
    }
    text = text.substr(0, begin);
  }
  std::string shown;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    shown += fmt::format("{}\n", *line);
  }
  return shown;
}

void tell_of_ranks(const compare::RunRecord& run) {
  const std::string text = end_of_file(run.output_path);
  const std::optional<std::size_t> rank = run.outcome.first_failed;
  const std::string mark = rank ? fmt::format("[{}] ", *rank) : "";
  if (rank) {
    fmt::print(stderr,
               "spillway: rank {} failed first, with exit code {}; the end of what it "
               "printed:\n{}",
               *rank, run.outcome.exit_codes[*rank],
               last_lines(text, [&](std::string_view line) { return line.starts_with(mark); }));
  }
  fmt::print(
      stderr, "spillway: the end of {}{}:\n{}", run.output_path,
      rank ? fmt::format(" without rank {}", *rank) : "",
      last_lines(text, [&](std::string_view line) { return !rank || !line.starts_with(mark); }));
}

// ------------------------------------------------------------------ files

constexpr std::string_view kAnotherFolder = "; choose another folder with --out";

}  // namespace

std::filesystem::path compare_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    throw CommandError(fmt::format("cannot make the folder {} ({}): choose another with --out",
                                   path, error.message()));
  }
  return std::filesystem::absolute(path).lexically_normal();
}

CompareReport write_compare_report(const std::filesystem::path& folder,
                                   const compare::Comparison& comparison,
                                   const std::vector<compare::Fact>& network) {
  CompareReport report;
  report.page = folder / "report.html";
  nlohmann::json json = compare::comparison_json(comparison, network);
  json["page"] = report.page.string();
  // dump() would throw on command bytes that are not UTF-8, so they are replaced.
  report.json = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  write_output(report.page.string(), compare::comparison_page(comparison, network), {},
               kAnotherFolder);
  write_output((folder / "report.json").string(), report.json + "\n", {}, kAnotherFolder);
  return report;
}

void tell_of_failed_run(const compare::RunRecord& run) {
  const lab::LabOutcome& outcome = run.outcome;
  const bool failed_by_itself = run.not_made.empty() && run.late.empty() && !outcome.over_limit &&
                                outcome.interrupted_by == 0;
  if (failed_by_itself) {
    fmt::print(stderr, "spillway: over {} the command failed with exit code {}\n",
               run.transport.name, outcome.worst_exit_code());
  } else {
    fmt::print(stderr, "spillway: run over {}: {}\n", run.transport.name, compare::failure_of(run));
  }
  if (failed_by_itself || outcome.over_limit) {
    tell_of_ranks(run);
  }
}

void print_compare_report(const compare::Comparison& comparison, const CompareReport& report) {
  const std::optional<compare::GainSplit> split = compare::split_of(comparison);
  const bool is_wide = comparison.runs.size() > kMaxColumns;
  fmt::print("{}", (is_wide ? overview_table(comparison) : compare_table(comparison)).to_string());
  if (is_wide) {
    fmt::print(
        "Tenants: the share of what others on the network would have got through alone; tenants' "
        "bytes: what they got through.\n");
  }
  if (split) {
    fmt::print("\n{}{}\n\n", is_wide ? "" : split_table(*split).to_string(),
               compare::split_explanation(*split));
  }
  const std::string time = compare::slowdown_sentence(compare::slowdown_of(comparison));
  if (!time.empty()) {
    fmt::print("{}\n", time);
  }
  for (const std::string& note : compare::notes_of(comparison)) {
    fmt::print("Note: {}\n", note);
  }
  fmt::print("Page: {}\n", report.page.string());
}

}  // namespace spillway::cli
