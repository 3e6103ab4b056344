// SPDX-License-Identifier: Apache-2.0
#include "compare/comparison.h"

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

// Of the whole run.
lab::FabricSample totals_of(const RunRecord& run) {
  return lab::sample_of(run.outcome.fabric, run.outcome.elapsed);
}

// From its first traffic to its last: what programs do before and behind is not the network's.
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

// Unlike bytes, it does not grow with the time that a run takes.
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

// Of those that are known.
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
    for (const RunRecord* round : rounds_of(run)) {
      rounds.push_back(value_of(*round));
    }
    named.values.push_back(mean(rounds));
  }
  named.ratios = ratios_of(named.values);
  return named;
}

std::string target_label(Value target) {
  return target ? fmt::format("time to {:.1f} % accuracy", *target * 100) : "time to accuracy";
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

double seconds_of(base::Duration duration) {
  return static_cast<double>(duration.count()) * 1e-9;
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
  Value lowest = comparison.wanted_accuracy;
  for (const RunRecord& run : comparison.runs) {
    for (const RunRecord* round : rounds_of(run)) {
      const Value best = best_accuracy(*round);
      if (!comparison.wanted_accuracy && best) {
        lowest = lowest ? std::min(*lowest, *best) : *best;
      }
    }
  }
  return lowest;
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
  for (const RunRecord& repeat : run.repeats) {
    rounds.push_back(&repeat);
  }
  return rounds;
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
  add("elapsed_seconds", "time in all", Unit::kSeconds,
      [](const RunRecord& run) { return Value(seconds_of(run.outcome.elapsed)); });
  add("link_use", "use of the busiest link", Unit::kShare, busiest_link_use, Better::kNeither);
  add("wire_bytes", "bytes on the wire", Unit::kBytes,
      [](const RunRecord& run) { return Value(totals_of(run).sent_bytes); });
  add(
      "trimmed_packets", "packets trimmed", Unit::kPackets,
      [](const RunRecord& run) { return Value(totals_of(run).trimmed); }, Better::kNeither);
  add("lost_packets", "packets lost", Unit::kPackets,
      [](const RunRecord& run) { return Value(totals_of(run).lost); });
  add("tenant_bytes", "tenants' bytes that got through", Unit::kBytes, tenant_bytes,
      Better::kNeither);
  add("tenant_share", "share of what tenants wanted", Unit::kShare, tenant_share, Better::kMore);
  add("cpu_seconds", "processor time", Unit::kSeconds,
      [](const RunRecord& run) { return Value(seconds_of(run.outcome.cpu)); });
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

}  // namespace spillway::compare
