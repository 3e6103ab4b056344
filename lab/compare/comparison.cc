// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>

namespace spillway::compare {

namespace {

using Value = std::optional<double>;
using ValueOf = std::function<Value(const RunRecord&)>;

std::vector<double> times_of(const ProgressLog& log) {
  std::vector<double> times;
  for (const LogStep& step : log.steps) {
    if (step.step_ms) {
      times.push_back(*step.step_ms);
    }
  }
  return times;
}

// Leaves out runs that failed.
ValueOf of_whole_runs(ValueOf value_of) {
  return [value_of = std::move(value_of)](const RunRecord& run) {
    return went_well(run) ? value_of(run) : std::nullopt;
  };
}

bool has_numbers(const RunRecord& run) {
  return run.not_made.empty() && run.late.empty();
}

// A failed round counts only if no round of the run went well.
bool counts(const RunRecord& round, const std::vector<const RunRecord*>& rounds) {
  return has_numbers(round) &&
         (went_well(round) ||
          std::ranges::none_of(rounds, [](const auto* other) { return went_well(*other); }));
}

Value longest_first_step(const RunRecord& run) {
  std::vector<double> times = step_times(run);
  times.resize(std::min(kFirstSteps, times.size()));
  return percentile(std::move(times), 1.0);
}

Value seconds_to(const RunRecord& run, Value target) {
  for (const LogEvaluation& evaluation : run.log.evaluations) {
    if (target && evaluation.accuracy >= *target) {
      return evaluation.seconds;
    }
  }
  return std::nullopt;
}

Value final_accuracy(const RunRecord& run) {
  return run.log.evaluations.empty() ? Value() : Value(run.log.evaluations.back().accuracy);
}

Value best_accuracy(const RunRecord& run) {
  Value best;
  for (const LogEvaluation& evaluation : run.log.evaluations) {
    best = std::max(best, Value(evaluation.accuracy));
  }
  return best;
}

// Unknown values are ignored.
Value lower(const Value& a, const Value& b) {
  return a && b ? std::min(a, b) : a ? a : b;
}

// Totals of the whole run.
lab::FabricSample totals_of(const RunRecord& run) {
  return lab::sample_of(run.outcome.fabric, run.outcome.elapsed);
}

// Mean from first to last traffic: what programs do before and after is not the network's.
Value busiest_link_use(const RunRecord& run) {
  const std::vector<double>& bins = run.outcome.time.use_over_time;
  const auto is_used = [](double use) { return use >= lab::kGapUse; };
  const auto first = std::find_if(bins.begin(), bins.end(), is_used);
  const auto last = std::find_if(bins.rbegin(), std::make_reverse_iterator(first), is_used).base();
  const double sum = std::accumulate(first, last, 0.0);
  return first == last ? std::nullopt : Value(sum / static_cast<double>(last - first));
}

Value tenant_bytes(const RunRecord& run) {
  const fabric::FabricSnapshot& fabric = run.outcome.fabric;
  return fabric.wanted_bytes > 0 ? Value(static_cast<double>(fabric.tenant_bytes)) : std::nullopt;
}

// Unlike bytes, the share does not grow with the duration of a run.
Value tenant_share(const RunRecord& run) {
  const Value bytes = tenant_bytes(run);
  return bytes ? Value(*bytes / static_cast<double>(run.outcome.fabric.wanted_bytes))
               : std::nullopt;
}

std::vector<Value> ratios_of(const std::vector<Value>& values) {
  std::vector<Value> ratios;
  for (const Value& value : values) {
    const bool has_ratio = value && values.front() && *values.front() > 0;
    ratios.push_back(has_ratio ? Value(*value / *values.front()) : std::nullopt);
  }
  return ratios;
}

// Mean of the known values.
Value mean(const std::vector<Value>& values) {
  double sum = 0;
  double count = 0;
  for (const Value& value : values) {
    sum += value.value_or(0);
    count += value ? 1 : 0;
  }
  return count > 0 ? Value(sum / count) : std::nullopt;
}

Metric metric(const Comparison& comparison, Metric named, const ValueOf& value_of) {
  for (const RunRecord& run : comparison.runs) {
    std::vector<Value>& rounds = named.by_round.emplace_back();
    const std::vector<const RunRecord*> records = rounds_of(run);
    for (const RunRecord* round : records) {
      rounds.push_back(counts(*round, records) ? value_of(*round) : std::nullopt);
    }
    named.values.push_back(mean(rounds));
  }
  named.ratios = ratios_of(named.values);
  return named;
}

std::string target_label(Value target) {
  return target ? fmt::format("time to {:.1f} % accuracy", *target * 100) : "time to accuracy";
}

// The rank that failed first; if none is known, the first with a nonzero exit code.
std::size_t first_failed_rank(const lab::LabOutcome& outcome) {
  const auto found = std::ranges::find_if(outcome.exit_codes, [](int code) { return code != 0; });
  return outcome.first_failed.value_or(
      static_cast<std::size_t>(found - outcome.exit_codes.begin()));
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 2, kUnits[unit]);
}

}  // namespace

bool went_well(const RunRecord& run) {
  return has_numbers(run) && run.outcome.worst_exit_code() == 0;
}

std::string failure_of(const RunRecord& run) {
  const lab::LabOutcome& outcome = run.outcome;
  if (went_well(run)) {
    return {};
  }
  if (!has_numbers(run)) {
    return run.not_made.empty() ? run.late : run.not_made;
  }
  const double seconds = base::seconds_of(outcome.elapsed);
  if (outcome.interrupted_by != 0) {
    return fmt::format("stopped by signal {} after {:.0f} s", outcome.interrupted_by, seconds);
  }
  if (outcome.over_limit) {
    return fmt::format("ended after {:.0f} s, at its limit (--limit); what it printed is in {}",
                       seconds, run.output_path);
  }
  const std::size_t rank = first_failed_rank(outcome);
  return fmt::format("rank {} failed first, with exit code {}; what it printed is in {}", rank,
                     outcome.exit_codes[rank], run.output_path);
}

std::string result_text(const RunRecord& run) {
  if (went_well(run)) {
    return "done";
  }
  if (!run.not_made.empty()) {
    return "failed: not started";
  }
  if (!run.late.empty()) {
    return "failed: late";
  }
  if (run.outcome.interrupted_by != 0) {
    return "stopped";
  }
  return run.outcome.over_limit
             ? "failed: limit"
             : fmt::format("failed: exit code {}", run.outcome.worst_exit_code());
}

std::optional<double> percentile(std::vector<double> values, double share) {
  if (values.empty()) {
    return std::nullopt;
  }
  const double place = std::ceil(share * static_cast<double>(values.size()) - 1e-9);
  const auto index = static_cast<std::size_t>(std::max(place, 1.0)) - 1;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::min(index, values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

std::optional<double> target_accuracy(const Comparison& comparison) {
  if (comparison.wanted_accuracy) {
    return comparison.wanted_accuracy;
  }
  Value of_good;
  Value of_all;
  for (const RunRecord& run : comparison.runs) {
    for (const RunRecord* round : rounds_of(run)) {
      const Value best = best_accuracy(*round);
      of_all = lower(of_all, best);
      of_good = went_well(*round) ? lower(of_good, best) : of_good;
    }
  }
  return of_good ? of_good : of_all;
}

const RunRecord* first_made(const Comparison& comparison) {
  const auto made = std::ranges::find_if(comparison.runs,
                                         [](const RunRecord& run) { return run.not_made.empty(); });
  return made == comparison.runs.end() ? nullptr : &*made;
}

lab::Slowdown slowdown_of(const Comparison& comparison) {
  return comparison.runs.empty() ? lab::Slowdown() : comparison.runs.front().slowdown;
}

bool accuracy_is_comparable(const Comparison& comparison) {
  return std::ranges::all_of(comparison.runs, [](const RunRecord& run) {
    return run.log.evaluations.empty() || step_times(run).size() >= kLeastStepsForAccuracy;
  });
}

StepSource step_source(const RunRecord& run) {
  if (!times_of(run.log).empty()) {
    return StepSource::kLog;
  }
  return times_of(run.watched).empty() ? StepSource::kNone : StepSource::kOptimizer;
}

std::vector<double> step_times(const RunRecord& run) {
  return times_of(step_source(run) == StepSource::kLog ? run.log : run.watched);
}

std::vector<double> steady_step_times(const RunRecord& run) {
  std::vector<double> times = step_times(run);
  const std::size_t left_out = std::min(kFirstSteps, times.size());
  times.erase(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(left_out));
  return times;
}

std::vector<const RunRecord*> rounds_of(const RunRecord& run) {
  std::vector<const RunRecord*> rounds = {&run};
  for (const RunRecord& repeat : run.later_rounds) {
    rounds.push_back(&repeat);
  }
  return rounds;
}

const RunRecord* first_failed_round(const RunRecord& run) {
  const std::vector<const RunRecord*> rounds = rounds_of(run);
  const auto failed =
      std::ranges::find_if(rounds, [](const RunRecord* round) { return !went_well(*round); });
  return failed == rounds.end() ? nullptr : *failed;
}

bool has_failures(const Comparison& comparison) {
  return std::ranges::any_of(
      comparison.runs, [](const RunRecord& run) { return first_failed_round(run) != nullptr; });
}

std::vector<Metric> metrics_of(const Comparison& comparison) {
  const Value target = target_accuracy(comparison);
  std::vector<Metric> metrics;
  const auto add = [&](std::string key, std::string label, Unit unit, const ValueOf& value_of,
                       Better better = Better::kLess) {
    metrics.push_back(
        metric(comparison, {std::move(key), std::move(label), unit, better, {}, {}, {}}, value_of));
  };
  add("step_p50_ms", "step time, median", Unit::kMilliseconds,
      [](const RunRecord& run) { return percentile(steady_step_times(run), 0.50); });
  add("step_p99_ms", "step time, 99th percentile", Unit::kMilliseconds,
      [](const RunRecord& run) { return percentile(steady_step_times(run), 0.99); });
  add("step_first_ms", fmt::format("longest of the first {} steps", kFirstSteps),
      Unit::kMilliseconds, longest_first_step);
  add("seconds_to_target", target_label(target), Unit::kSeconds,
      [target](const RunRecord& run) { return seconds_to(run, target); });
  add("final_accuracy", "final accuracy", Unit::kShare, final_accuracy, Better::kMore);
  add("elapsed_seconds", "time in all", Unit::kSeconds, of_whole_runs([](const RunRecord& run) {
        return Value(base::seconds_of(run.outcome.elapsed));
      }));
  add("link_use", "use of the busiest link", Unit::kShare, busiest_link_use, Better::kNeither);
  add("wire_bytes", "bytes on the wire", Unit::kBytes,
      of_whole_runs([](const RunRecord& run) { return Value(totals_of(run).sent_bytes); }));
  add("trimmed_packets", "packets trimmed", Unit::kPackets,
      of_whole_runs([](const RunRecord& run) { return Value(totals_of(run).trimmed); }),
      Better::kNeither);
  add("lost_packets", "packets lost", Unit::kPackets,
      of_whole_runs([](const RunRecord& run) { return Value(totals_of(run).lost); }));
  add("tenant_bytes", "tenants' bytes that got through", Unit::kBytes, of_whole_runs(tenant_bytes),
      Better::kNeither);
  add("tenant_share", "share of what tenants wanted", Unit::kShare, tenant_share, Better::kMore);
  add("cpu_seconds", "processor time", Unit::kSeconds,
      of_whole_runs([](const RunRecord& run) { return Value(base::seconds_of(run.outcome.cpu)); }));
  return metrics;
}

std::string value_text(Unit unit, double value) {
  switch (unit) {
    case Unit::kMilliseconds:
      return fmt::format("{:.1f} ms", value);
    case Unit::kSeconds:
      return fmt::format("{:.2f} s", value);
    case Unit::kShare:
      return fmt::format("{:.1f} %", value * 100);
    case Unit::kBytes:
      return bytes_text(value);
    case Unit::kPackets:
      break;
  }
  return count_text(static_cast<std::uint64_t>(value));
}

std::string ratio_text(double ratio) {
  return fmt::format("{:.2f}x", ratio);
}

std::string count_text(std::uint64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    text += i > 0 && (digits.size() - i) % 3 == 0 ? "," : "";
    text += digits[i];
  }
  return text;
}

namespace {

using Value = std::optional<double>;

// Both send 32 bits per value.
constexpr const char* kCubicTcp = "tcp";
constexpr const char* kBbrTcp = "tcp-bbr";

// The time of a run that was cut short says nothing.
bool has_failed(const RunRecord& run) {
  return first_failed_round(run) != nullptr;
}

// Time of the run over `transport`; null if there is none, it failed, or its time is unknown.
Value time_of(const Comparison& comparison, const Metric& metric, const std::string& transport) {
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    if (comparison.runs[i].transport.name == transport) {
      return has_failed(comparison.runs[i]) ? std::nullopt : metric.values[i];
    }
  }
  return std::nullopt;
}

Value quotient(const Value& dividend, const Value& divisor) {
  return dividend && divisor && *divisor > 0 ? Value(*dividend / *divisor) : std::nullopt;
}

bool all_have(const Comparison& comparison, const Metric& metric) {
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    if (!metric.values[i] && !has_failed(comparison.runs[i])) {
      return false;
    }
  }
  return true;
}

Metric metric_called(const std::vector<Metric>& metrics, std::string_view key) {
  return *std::find_if(metrics.begin(), metrics.end(),
                       [key](const Metric& metric) { return metric.key == key; });
}

}  // namespace

std::optional<GainSplit> split_of(const Comparison& comparison) {
  const std::vector<Metric> metrics = metrics_of(comparison);
  GainSplit split;
  split.metric = metric_called(metrics, "step_p50_ms");
  if (!all_have(comparison, split.metric)) {
    split.metric = metric_called(metrics, "elapsed_seconds");
  }
  const Value cubic = time_of(comparison, split.metric, kCubicTcp);
  const Value bbr = time_of(comparison, split.metric, kBbrTcp);
  split.baseline = bbr && (!cubic || *bbr < *cubic) ? kBbrTcp : kCubicTcp;
  const Value baseline = split.baseline == kBbrTcp ? bbr : cubic;
  for (const RunRecord& run : comparison.runs) {
    const Transport& transport = run.transport;
    if (transport.name != split.baseline) {
      const std::string& same_bits =
          transport.control == kCubicTcp ? split.baseline : transport.control;
      const Value own = time_of(comparison, split.metric, transport.name);
      const Value control = time_of(comparison, split.metric, same_bits);
      const Value flat = time_of(comparison, split.metric, transport.flat);
      split.shares.push_back({transport.name, transport.title, same_bits, quotient(baseline, own),
                              quotient(baseline, control),
                              quotient(control, flat && own ? flat : own), quotient(flat, own)});
    }
  }
  const bool is_split = baseline && !split.shares.empty();
  return is_split ? std::optional(std::move(split)) : std::nullopt;
}

std::string split_explanation(const GainSplit& split) {
  return fmt::format(
      "Gains are over {0}, the fastest uncompressed TCP compared here ({1}). A gain is a product: "
      "by bits, {0}'s time over that of the same bits on TCP, times by transport, times by "
      "scheduling. The same bits on TCP are tcp-fp16's for spillway-16, and those of "
      "spillway-over-tcp, which has Spillway's own codec and collectives, for spillway. "
      "spillway-exact may send floats as lossless code, which no TCP here does, so its gain is not "
      "split. tcp-fp16 and spillway-over-tcp run over TCP cubic. Scheduling is the gain over "
      "spillway-flat of sending front layers first; where that is not compared, it is part of the "
      "transport.",
      split.baseline, split.metric.label);
}

}  // namespace spillway::compare
