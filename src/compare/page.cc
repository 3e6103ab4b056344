// SPDX-License-Identifier: Apache-2.0
#include "compare/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/version.h"
#include "compare/charts.h"
#include "compare/metrics.h"
#include "compare/notes.h"
#include "compare/page_style.h"
#include "plot/html_text.h"

namespace spillway::compare {
namespace {

using plot::html_escape;

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
    names += (names.empty() ? "" : ", ") + run.transport.name;
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
                         plot::chart_colour(i), html_escape(comparison.runs[i].transport.name));
  }
  return "<thead><tr>" + cells + "</tr></thead>";
}

// None where the runs do not differ, or none is better for it.
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

std::string table_of(const Comparison& comparison) {
  std::string rows;
  for (const Metric& metric : metrics_of(comparison)) {
    rows += fmt::format("<tr><th scope='row'>{}</th>", html_escape(metric.label));
    for (std::size_t run = 0; run < comparison.runs.size(); ++run) {
      rows += table_cell(metric, run, best_of(metric));
    }
    rows += "</tr>";
  }
  return fmt::format(
      "<section><h2>Summary</h2><div class='scroll'><table>{}<tbody>{}</tbody></table></div>"
      "<p class='small'>Ratios are to {}; the best of a row is bold. Bytes and packets are those "
      "of "
      "all switch ports, background traffic included, of which a longer run has "
      "more.</p></section>",
      table_head(comparison), rows, html_escape(comparison.runs.front().transport.name));
}

// ------------------------------------------------------------------ the rest

std::string figure(const plot::Chart& chart, const char* id) {
  return fmt::format("<figure id='{}'>{}</figure>", id, plot::svg_of(chart));
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
  const lab::LabOutcome& outcome = comparison.runs.front().outcome;
  std::vector<Fact> facts = network;
  facts.push_back({"emulation",
                   fmt::format("isolation {}, dataplane {}", lab::isolation_name(outcome.isolation),
                               lab::dataplane_name(outcome.dataplane))});
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
      "<style>{}</style></head><body><main>{}{}{}{}{}</main></body></html>\n",
      kPageStyle, heading(comparison), notes_section(comparison), table_of(comparison),
      charts_of(comparison), facts_section(comparison, network));
}

}  // namespace spillway::compare
