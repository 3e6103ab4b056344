// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/comparison_json.h"

#include "lab/compare/comparison.h"
#include "lab/compare/notes.h"
#include "lab/compare/split.h"

namespace spillway::compare {
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
