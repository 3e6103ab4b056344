// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/version.h"
#include "lab/compare/comparison.h"
#include "tools/plot/svg_chart.h"

namespace spillway::compare {

namespace {

using plot::html_escape;

// The page's style: light and dark, wide and narrow screens, and paper.
constexpr const char* kPageStyle = R"(
:root { color-scheme: light dark; --text: #1c2430; --soft: #5b6675; --line: #dde2e8;
  --ground: #f6f7f9; --card: #ffffff; --note: #fff6e0; --note-line: #e69f00; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8ebef; --soft: #9aa5b4; --line: #333c49; --ground: #12161c; --card: #1a2029;
    --note: #2c2613; --note-line: #e69f00; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
.eyebrow { margin: 0; color: var(--soft); font-size: .8rem; letter-spacing: .08em;
  text-transform: uppercase; }
h1 { margin: .2rem 0 1rem; font-size: 1.9rem; line-height: 1.2; font-weight: 650; }
h2 { margin: 0 0 .75rem; font-size: 1.15rem; font-weight: 650; }
.command { margin: 0; padding: .7rem .9rem; white-space: pre-wrap; overflow-wrap: anywhere;
  background: var(--card);
  border: 1px solid var(--line); border-radius: 8px;
  font: .85rem/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
section { margin-top: 1.5rem; padding: 1.25rem 1.4rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 12px; }
.notes { background: var(--note); border-color: var(--note-line); }
.notes ul { margin: 0; padding-left: 1.2rem; }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th[scope=row] { text-align: left; font-weight: 400; color: var(--soft); }
tbody tr:last-child > * { border-bottom: 0; }
.best { font-weight: 700; }
.none, .ratio { color: var(--soft); }
.ratio { display: inline-block; min-width: 4.2em; font-size: .85em; font-weight: 400; }
.chip { display: inline-block; width: .8em; height: .8em; margin-right: .45em; border-radius: 3px; }
.small { margin: .75rem 0 0; color: var(--soft); font-size: .85rem; }
figure { margin: 0; }
figure + figure { margin-top: 1rem; }
figure svg, #overview svg { display: block; width: 100%; height: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.5rem; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
@media print { body { background: none; } section { break-inside: avoid; } }
)";

std::string command_text(const std::vector<std::string>& command) {
  std::string text;
  for (const std::string& word : command) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

std::string heading(const Comparison& comparison) {
  std::string names;
  for (const RunRecord& run : comparison.runs) {
    names += (names.empty() ? "" : ", ") + run.transport.title;
  }
  return fmt::format(
      "<header><p class='eyebrow'>spillway lab compare</p><h1>One command over {}</h1>"
      "<pre class='command'>{}</pre></header>",
      html_escape(names), html_escape(command_text(comparison.command)));
}

// ------------------------------------------------------------------ the table

std::string table_head(const Comparison& comparison) {
  std::string cells = "<th scope='col'></th>";
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    cells += fmt::format("<th scope='col'><span class='chip' style='background:{}'></span>{}</th>",
                         plot::chart_colour(i), html_escape(comparison.runs[i].transport.title));
  }
  return "<thead><tr>" + cells + "</tr></thead>";
}

// Null if the runs do not differ, or if no direction is better.
std::optional<double> best_of(const Metric& metric) {
  std::optional<double> best;
  std::optional<double> worst;
  for (const std::optional<double>& value : metric.values) {
    const auto better = [&metric](double a, double b) {
      return metric.better == Better::kMore ? a > b : a < b;
    };
    best = value && (!best || better(*value, *best)) ? value : best;
    worst = value && (!worst || better(*worst, *value)) ? value : worst;
  }
  return best == worst || metric.better == Better::kNeither ? std::nullopt : best;
}

std::string table_cell(const Metric& metric, std::size_t run, const std::optional<double>& best) {
  if (!metric.values[run]) {
    return "<td class='none'>&ndash;</td>";
  }
  const bool has_ratio = run > 0 && metric.ratios[run];
  return fmt::format("<td{}>{}<span class='ratio'>{}</span></td>",
                     metric.values[run] == best ? " class='best'" : "",
                     value_text(metric.unit, *metric.values[run]),
                     has_ratio ? ratio_text(*metric.ratios[run]) : "");
}

std::string rounds_text(const Comparison& comparison) {
  return comparison.rounds == 1
             ? ""
             : fmt::format("Numbers are means of {} rounds; plots show the first. ",
                           comparison.rounds);
}

// Empty if no run failed.
std::string result_row(const Comparison& comparison) {
  if (!has_failures(comparison)) {
    return {};
  }
  std::string cells;
  for (const RunRecord& run : comparison.runs) {
    const RunRecord* failed = first_failed_round(run);
    cells +=
        fmt::format("<td>{}</td>", html_escape(result_text(failed == nullptr ? run : *failed)));
  }
  return fmt::format("<tr><th scope='row'>result</th>{}</tr>", cells);
}

std::string table_of(const Comparison& comparison) {
  std::string rows;
  for (const Metric& metric : metrics_of(comparison)) {
    rows += fmt::format("<tr><th scope='row'>{}</th>", html_escape(metric.label));
    for (std::size_t run = 0; run < comparison.runs.size(); ++run) {
      rows += table_cell(metric, run, best_of(metric));
    }
    rows += "</tr>";
  }
  rows += result_row(comparison);
  return fmt::format(
      "<section><h2>Summary</h2><div class='scroll'><table>{}<tbody>{}</tbody></table></div>"
      "<p class='small'>Ratios are to {}; the best of a row is bold. {}Medians and percentiles "
      "leave out the first {} steps, in which connections are made. Bytes and packets are those of "
      "all switch ports, background traffic included, of which a longer run has "
      "more.</p></section>",
      table_head(comparison), rows, html_escape(comparison.runs.front().transport.title),
      rounds_text(comparison), kFirstSteps);
}

// ------------------------------------------------------------------ bits and transport

std::string factor_cell(const std::optional<double>& factor) {
  return factor ? fmt::format("<td>{}</td>", ratio_text(*factor)) : "<td class='none'>&ndash;</td>";
}

std::string split_row(const GainShare& share) {
  return fmt::format("<tr><th scope='row'>{}</th>{}{}{}{}<td>{}</td></tr>",
                     html_escape(share.title), factor_cell(share.gain), factor_cell(share.bits),
                     factor_cell(share.transport), factor_cell(share.scheduling),
                     html_escape(share.control));
}

std::string split_section(const Comparison& comparison) {
  const std::optional<GainSplit> split = split_of(comparison);
  if (!split) {
    return {};
  }
  std::string rows;
  for (const GainShare& share : split->shares) {
    rows += split_row(share);
  }
  return fmt::format(
      "<section id='split'><h2>Where the gain comes from</h2><div class='scroll'><table><thead><tr>"
      "<th scope='col'></th><th scope='col'>times as fast as {}</th><th scope='col'>by bits</th>"
      "<th scope='col'>by transport</th><th scope='col'>by scheduling</th><th scope='col'>the same "
      "bits on TCP</th></tr></thead>"
      "<tbody>{}</tbody></table></div><p class='small'>{}</p></section>",
      html_escape(split->baseline), rows, html_escape(split_explanation(*split)));
}

// ------------------------------------------------------------------ the rest

std::string figure(const plot::Chart& chart, const char* id) {
  return fmt::format("<figure id='{}'>{}</figure>", id, plot::svg_of(chart));
}

// Empty if no run has step times.
std::string overview_section(const Comparison& comparison) {
  const plot::BarChart chart = overview_chart(comparison);
  const bool has_bars =
      std::ranges::any_of(chart.bars, [](const auto& bar) { return bar.value.has_value(); });
  return has_bars ? fmt::format("<section id='overview'>{}</section>", plot::svg_of(chart)) : "";
}

std::string charts_of(const Comparison& comparison) {
  return "<section><h2>Progress</h2>" + figure(accuracy_chart(comparison), "accuracy") +
         "</section><section><h2>How long steps took</h2>" +
         figure(step_time_chart(comparison), "steps") +
         "</section><section><h2>What the switches did meanwhile</h2>" +
         figure(queue_chart(comparison), "queue") + figure(trim_chart(comparison), "trim") +
         figure(loss_chart(comparison), "loss") + "</section>";
}

std::string notes_section(const Comparison& comparison) {
  std::string items;
  for (const std::string& note : notes_of(comparison)) {
    items += fmt::format("<li>{}</li>", html_escape(note));
  }
  return items.empty() ? ""
                       : fmt::format(
                             "<section class='notes'><h2>To know before reading</h2><ul>{}</ul>"
                             "</section>",
                             items);
}

std::string facts_section(const Comparison& comparison, const std::vector<Fact>& network) {
  std::vector<Fact> facts = network;
  if (const RunRecord* made = first_made(comparison); made != nullptr) {
    facts.push_back({"emulation", fmt::format("isolation {}, dataplane {}",
                                              lab::isolation_name(made->outcome.isolation),
                                              lab::dataplane_name(made->outcome.dataplane))});
  }
  facts.push_back({"version", std::string(base::kVersion)});
  std::string items;
  for (const Fact& fact : facts) {
    items += fmt::format("<dt>{}</dt><dd>{}</dd>", html_escape(fact.name), html_escape(fact.value));
  }
  return fmt::format("<section><h2>The network</h2><dl>{}</dl></section>", items);
}

}  // namespace

std::string comparison_page(const Comparison& comparison, const std::vector<Fact>& network) {
  return fmt::format(
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
      "<meta name='viewport' content='width=device-width,initial-scale=1'>"
      "<link rel='icon' href='data:,'><title>Spillway: one command over several transports</title>"
      "<style>{}</style></head><body><main>{}{}{}{}{}{}{}</main></body></html>\n",
      kPageStyle, heading(comparison), overview_section(comparison), notes_section(comparison),
      table_of(comparison), split_section(comparison), charts_of(comparison),
      facts_section(comparison, network));
}

namespace {

using nlohmann::json;

json number_or_null(const std::optional<double>& number) {
  return number ? json(*number) : json();
}

json evaluations_json(const ProgressLog& log) {
  json all = json::array();
  for (const LogEvaluation& evaluation : log.evaluations) {
    all.push_back({{"step", evaluation.step},
                   {"seconds", evaluation.seconds},
                   {"accuracy", evaluation.accuracy}});
  }
  return all;
}

json samples_json(const std::vector<lab::FabricSample>& samples) {
  json all = json::array();
  for (const lab::FabricSample& sample : samples) {
    all.push_back({{"seconds", base::seconds_of(sample.at)},
                   {"sent_bytes", sample.sent_bytes},
                   {"queued_bytes", sample.queued_bytes},
                   {"deepest_bytes", sample.deepest_bytes},
                   {"trimmed", sample.trimmed},
                   {"lost", sample.lost}});
  }
  return all;
}

json numbers_json(const std::vector<std::optional<double>>& numbers) {
  json all = json::array();
  for (const std::optional<double>& number : numbers) {
    all.push_back(number_or_null(number));
  }
  return all;
}

json source_json(StepSource source) {
  switch (source) {
    case StepSource::kLog:
      return "log";
    case StepSource::kOptimizer:
      return "optimizer";
    case StepSource::kNone:
      break;
  }
  return {};
}

json failure_json(const RunRecord& run) {
  const RunRecord* failed = first_failed_round(run);
  return failed == nullptr ? json() : json(failure_of(*failed));
}

json split_json(const std::optional<GainSplit>& split) {
  if (!split) {
    return {};
  }
  json shares = json::array();
  for (const GainShare& share : split->shares) {
    shares.push_back({{"transport", share.name},
                      {"control", share.control},
                      {"gain", number_or_null(share.gain)},
                      {"bits", number_or_null(share.bits)},
                      {"by_transport", number_or_null(share.transport)},
                      {"by_scheduling", number_or_null(share.scheduling)}});
  }
  return {{"metric", split->metric.key},
          {"baseline", split->baseline},
          {"explanation", split_explanation(*split)},
          {"shares", shares}};
}

json run_json(const RunRecord& run, std::size_t index, const std::vector<Metric>& metrics) {
  json values = json::object();
  json ratios = json::object();
  json rounds = json::object();
  for (const Metric& metric : metrics) {
    values[metric.key] = number_or_null(metric.values[index]);
    ratios[metric.key] = number_or_null(metric.ratios[index]);
    rounds[metric.key] = numbers_json(metric.by_round[index]);
  }
  return {{"transport", run.transport.name},
          {"backend", run.transport.backend},
          {"tcp", run.transport.tcp},
          {"hook", run.transport.hook.empty() ? json() : json(run.transport.hook)},
          {"exit_codes", run.outcome.exit_codes},
          {"failure", failure_json(run)},
          {"isolation", std::string(lab::isolation_name(run.outcome.isolation))},
          {"dataplane", std::string(lab::dataplane_name(run.outcome.dataplane))},
          {"late",
           {{"mean_us", run.outcome.pace.mean_late_us},
            {"limit_us", run.outcome.pace.limit_us},
            {"missed_frames", run.outcome.pace.missed}}},
          {"metrics", values},
          {"ratios", ratios},
          {"by_round", rounds},
          {"steps", step_times(run).size()},
          {"steps_from", source_json(step_source(run))},
          {"bad_lines", run.log.bad_lines},
          {"left_out", run.log.left_out},
          {"evaluations", evaluations_json(run.log)},
          {"samples", samples_json(run.samples)},
          {"log", run.log_path},
          {"output", run.output_path}};
}

}  // namespace

json comparison_json(const Comparison& comparison, const std::vector<Fact>& network) {
  const std::vector<Metric> metrics = metrics_of(comparison);
  json facts = json::object();
  for (const Fact& fact : network) {
    facts[fact.name] = fact.value;
  }
  json runs = json::array();
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    runs.push_back(run_json(comparison.runs[i], i, metrics));
  }
  const lab::Slowdown slowdown = slowdown_of(comparison);
  return {{"command", comparison.command},
          {"network", facts},
          {"slowdown", {{"preset", slowdown.preset}, {"machine", slowdown.machine}}},
          {"target_accuracy", number_or_null(target_accuracy(comparison))},
          {"rounds", comparison.rounds},
          {"notes", notes_of(comparison)},
          {"split", split_json(split_of(comparison))},
          {"runs", runs}};
}

}  // namespace spillway::compare
