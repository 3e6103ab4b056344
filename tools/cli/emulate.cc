// SPDX-License-Identifier: Apache-2.0
//
// `spillway emulate show`: checks an execution trace, and shows what it holds. The other verbs of
// `emulate` have files of their own.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "emulate/simulate/graph_run.h"
#include "emulate/trace/graph.h"
#include "emulate/trace/lint.h"
#include "emulate/trace/reader.h"
#include "tools/cli/commands.h"
#include "tools/cli/emulate_options.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

// Prints ASCII only: names come from traces, and terminals act on some other characters.
std::string text_of(const json& value) {
  return value.dump(2, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

struct EmulateShowOptions {
  std::string trace;
  std::string out;
  bool checks_only = false;
  bool control = false;
  bool json = false;
};

// ------------------------------------------------------------------ findings

json finding_json(const emulate::Finding& finding) {
  json made = {{"severity", emulate::severity_name(emulate::severity_of(finding.kind))},
               {"kind", emulate::finding_kind_name(finding.kind)},
               {"file", finding.file},
               {"text", finding.text}};
  if (finding.node) {
    made["node"] = *finding.node;
  }
  return made;
}

json findings_json(const emulate::World& world, const emulate::LintReport& report) {
  json findings = json::array();
  for (const emulate::Finding& finding : report.findings) {
    findings.push_back(finding_json(finding));
  }
  json counts = json::object();
  for (std::size_t kind = 0; kind < emulate::kFindingKinds; ++kind) {
    if (report.counts[kind] > 0) {
      counts[emulate::finding_kind_name(static_cast<emulate::FindingKind>(kind))] =
          report.counts[kind];
    }
  }
  return {{"ranks", world.size()},
          {"nodes", world.nodes()},
          {"dependencies", world.edges()},
          {"errors", report.count(emulate::Severity::kError)},
          {"warnings", report.count(emulate::Severity::kWarning)},
          {"counts", counts},
          {"findings", findings}};
}

void print_findings(const emulate::World& world, const emulate::LintReport& report) {
  for (const emulate::Finding& finding : report.findings) {
    const std::string place = finding.node ? fmt::format("node {}: ", *finding.node) : "";
    fmt::print("{}{}{}: {}: {}{}\n", base::printable(finding.file),
               finding.file.empty() ? "" : ": ",
               emulate::severity_name(emulate::severity_of(finding.kind)),
               emulate::finding_kind_name(finding.kind), place, base::printable(finding.text));
  }
  for (std::size_t kind = 0; kind < emulate::kFindingKinds; ++kind) {
    std::uint64_t told = 0;
    for (const emulate::Finding& finding : report.findings) {
      told += static_cast<std::size_t>(finding.kind) == kind ? 1 : 0;
    }
    if (report.counts[kind] > told) {
      fmt::print("{}: {} more\n",
                 emulate::finding_kind_name(static_cast<emulate::FindingKind>(kind)),
                 report.counts[kind] - told);
    }
  }
  fmt::print("{} ranks, {} nodes, {} dependencies: {} errors, {} warnings\n", world.size(),
             world.nodes(), world.edges(), report.count(emulate::Severity::kError),
             report.count(emulate::Severity::kWarning));
}

// ------------------------------------------------------------------ what a trace holds

// A trace's communication by kind and size of group.
struct CommunicationTotals {
  std::uint64_t calls = 0;  // nodes of all ranks
  std::uint64_t bytes = 0;
};
using CommunicationTable = std::map<std::pair<std::string, std::size_t>, CommunicationTotals>;

CommunicationTable communication_of(const emulate::World& world) {
  CommunicationTable table;
  for (const emulate::RankGraph& rank : world.ranks) {
    for (const emulate::GraphNode& node : rank.nodes) {
      if (!node.moves_data()) {
        continue;
      }
      const bool is_collective = node.kind == emulate::NodeKind::kCollective;
      CommunicationTotals& totals =
          table[{is_collective ? emulate::collective_kind_name(node.collective)
                               : emulate::node_kind_name(node.kind),
                 is_collective ? world.groups[node.group].ranks.size() : 2}];
      ++totals.calls;
      totals.bytes += node.bytes;
    }
  }
  return table;
}

std::map<std::string, std::uint64_t> kinds_of(const emulate::World& world) {
  std::map<std::string, std::uint64_t> kinds;
  for (const emulate::RankGraph& rank : world.ranks) {
    for (const emulate::GraphNode& node : rank.nodes) {
      ++kinds[emulate::node_kind_name(node.kind)];
    }
  }
  return kinds;
}

// By how much a node of the critical path ends later than those before it.
base::Duration added_by(const emulate::NodeTimes& times, base::Instant& until) {
  const base::Duration added = std::max(base::Duration(), times.ended - until);
  until = std::max(until, times.ended);
  return added;
}

// Measures the traced run by its own clock: from a rank's first node's start to its last one's end,
// the longest of all ranks. Replays are compared with it. Zero if the trace has no clock.
class RecordedSpan final : public emulate::NodeSink {
 public:
  base::Status on_rank(const emulate::RankInfo& /*info*/) override {
    end_rank();
    return {};
  }
  base::Status on_node(const emulate::Node& node) override {
    first_ = std::min(first_, node.start);
    last_ = std::max(last_, node.start + node.duration);
    has_clock_ |= node.start > base::Duration();
    return {};
  }
  base::Duration longest() {
    end_rank();
    return has_clock_ ? longest_ : base::Duration();
  }

 private:
  void end_rank() {
    longest_ = std::max(longest_, last_ - std::min(first_, last_));
    first_ = base::Duration(INT64_MAX);
    last_ = base::Duration();
  }
  base::Duration first_{INT64_MAX};
  base::Duration last_{};
  base::Duration longest_{};
  bool has_clock_ = false;
};

base::Duration span_of(const std::string& trace) {
  RecordedSpan span;
  for (const emulate::TraceFile& file : value_or_throw(emulate::find_trace_files(trace))) {
    throw_unless_ok(emulate::read_trace_file(file.path, span));
  }
  return span.longest();
}

json show_json(const emulate::World& world, const emulate::GraphRunResult& run,
               base::Duration span) {
  json communication = json::array();
  for (const auto& [key, totals] : communication_of(world)) {
    communication.push_back({{"what", key.first},
                             {"among", key.second},
                             {"calls", totals.calls},
                             {"bytes", totals.bytes}});
  }
  json path = json::array();
  base::Instant until{};
  for (const emulate::NodePlace place : emulate::critical_path(run)) {
    const emulate::NodeTimes& times = run.times[place.rank][place.node];
    const base::Duration added = added_by(times, until);
    path.push_back({{"rank", place.rank},
                    {"node", world.ranks[place.rank].nodes[place.node].id},
                    {"what", emulate::node_text(world, place)},
                    {"began_us", base::microseconds_of(times.began.since_zero())},
                    {"added_us", base::microseconds_of(added)}});
  }
  return {{"ranks", world.size()},
          {"nodes", world.nodes()},
          {"dependencies", world.edges()},
          {"kinds", kinds_of(world)},
          {"communication", communication},
          {"recorded_us", base::microseconds_of(run.ended.since_zero())},
          {"span_us", base::microseconds_of(span)},
          {"critical_path", path}};
}

void print_show(const emulate::World& world, const emulate::GraphRunResult& run) {
  fmt::print("{:.3f} ms as recorded\n\n", base::microseconds_of(run.ended.since_zero()) / 1000.0);
  TextTable kinds({"nodes", "count"});
  for (const auto& [name, count] : kinds_of(world)) {
    kinds.add_row({name, std::to_string(count)});
  }
  TextTable communication({"communication", "among", "calls", "bytes"});
  for (const auto& [key, totals] : communication_of(world)) {
    communication.add_row({key.first, std::to_string(key.second), std::to_string(totals.calls),
                           std::to_string(totals.bytes)});
  }
  const std::vector<emulate::NodePlace> path = emulate::critical_path(run);
  std::map<std::string, base::Duration> by_kind;
  base::Instant until{};
  for (const emulate::NodePlace place : path) {
    by_kind[emulate::node_kind_name(world.ranks[place.rank].nodes[place.node].kind)] +=
        added_by(run.times[place.rank][place.node], until);
  }
  TextTable critical({"critical path", "us"});
  for (const auto& [name, length] : by_kind) {
    critical.add_row({name, fmt::format("{:.1f}", base::microseconds_of(length))});
  }
  fmt::print("{}\n{}\n{} nodes are on the critical path:\n{}", kinds.to_string(),
             communication.to_string(), path.size(), critical.to_string());
}

void show_sound(const EmulateShowOptions& options, const emulate::World& world,
                const emulate::LintReport& report) {
  const emulate::Matches meetings(world);
  emulate::RecordedModel model;
  emulate::GraphRunOptions run_options;
  run_options.keeps_times = true;
  const emulate::GraphRunResult run = emulate::GraphRun(world, meetings, model, run_options).run();
  if (options.json) {
    json shown = findings_json(world, report);
    shown.update(show_json(world, run, span_of(options.trace)));
    fmt::print("{}\n", text_of(shown));
  } else {
    print_findings(world, report);
    print_show(world, run);
  }
  if (!options.out.empty()) {
    const std::string title = std::filesystem::path(options.trace).filename().string();
    write_output(options.out, emulate::timeline_page(title, world, run), "--out: ");
  }
  throw_unless_ok(run.status);
}

void show_trace(const EmulateShowOptions& options) {
  const emulate::World world = value_or_throw(emulate::read_world(
      options.trace, {.follows_control = options.control, .keeps_names = !options.checks_only}));
  const emulate::LintReport report = emulate::lint(world);
  const bool is_sound = report.count(emulate::Severity::kError) == 0;
  if (is_sound && !options.checks_only) {
    show_sound(options, world, report);
    return;
  }
  if (options.json) {
    fmt::print("{}\n", text_of(findings_json(world, report)));
  } else {
    print_findings(world, report);
  }
  if (!is_sound) {
    throw CommandExit{kExitFailure};
  }
}

void add_emulate_show(CLI::App& noun) {
  const auto options = std::make_shared<EmulateShowOptions>();
  CLI::App* command = noun.add_subcommand(
      "show", "Check a trace, then show its nodes, its communication and its critical path");
  command->add_option("trace", options->trace, kTracePlace)->required();
  CLI::Option* out =
      command->add_option("--out", options->out, "Write a page with the timeline here");
  command
      ->add_flag("--check", options->checks_only,
                 "Only check: print what is wrong, by file and node, and nothing else")
      ->excludes(out);
  command->add_flag("--control", options->control, "Control dependencies count as well");
  command->add_flag("--json", options->json, "Print JSON instead of tables");
  command->footer(
      "A trace with errors is not shown, only its errors, and the exit code is 1.\n"
      "Examples:\n"
      "  spillway emulate show traces/llama --out llama.html\n"
      "  spillway emulate show chakra.0.et.gz --check --json");
  command->callback([options] { show_trace(*options); });
}

}  // namespace

void add_emulate(CLI::App& app) {
  CLI::App* noun = app.add_subcommand(
      "emulate", "Jobs from execution traces, on simulated and emulated networks");
  noun->require_subcommand(1);
  noun->footer("Example:\n  spillway emulate show traces/llama");
  add_emulate_show(*noun);
  add_emulate_convert(*noun);
  add_emulate_synthesize(*noun);
  add_emulate_simulate(*noun);
  add_emulate_run(*noun);
  add_emulate_calibrate(*noun);
  add_emulate_stage(*noun);
  add_emulate_enter(*noun);
}

}  // namespace spillway::cli
