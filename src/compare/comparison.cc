// SPDX-License-Identifier: Apache-2.0
#include "compare/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace spillway::compare {
namespace {

using Value = std::optional<double>;
using ValueOf = std::function<Value(const RunRecord&)>;

Value step_percentile(const RunRecord& run, double share) {
  std::vector<double> times;
  for (const LogStep& step : run.log.steps) {
    if (step.step_ms) {
      times.push_back(*step.step_ms);
    }
  }
  return percentile(std::move(times), share);
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

std::vector<Value> ratios_of(const std::vector<Value>& values) {
  std::vector<Value> ratios;
  for (const Value& value : values) {
    const bool has_ratio = value && values.front() && *values.front() > 0;
    ratios.push_back(has_ratio ? Value(*value / *values.front()) : std::nullopt);
  }
  return ratios;
}

Metric metric(const Comparison& comparison, Metric named, const ValueOf& value_of) {
  for (const RunRecord& run : comparison.runs) {
    named.values.push_back(value_of(run));
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
    const Value best = best_accuracy(run);
    if (!comparison.wanted_accuracy && best) {
      lowest = lowest ? std::min(*lowest, *best) : *best;
    }
  }
  return lowest;
}

std::vector<Metric> metrics_of(const Comparison& comparison) {
  const Value target = target_accuracy(comparison);
  std::vector<Metric> metrics;
  const auto add = [&](std::string key, std::string label, Unit unit, const ValueOf& value_of,
                       Better better = Better::kLess) {
    metrics.push_back(
        metric(comparison, {std::move(key), std::move(label), unit, better, {}, {}}, value_of));
  };
  add("step_p50_ms", "step time, median", Unit::kMilliseconds,
      [](const RunRecord& run) { return step_percentile(run, 0.50); });
  add("step_p99_ms", "step time, 99th percentile", Unit::kMilliseconds,
      [](const RunRecord& run) { return step_percentile(run, 0.99); });
  add("seconds_to_target", target_label(target), Unit::kSeconds,
      [target](const RunRecord& run) { return seconds_to(run, target); });
  add("final_accuracy", "final accuracy", Unit::kShare, final_accuracy, Better::kMore);
  add("elapsed_seconds", "time in all", Unit::kSeconds,
      [](const RunRecord& run) { return Value(seconds_of(run.outcome.elapsed)); });
  add("wire_bytes", "bytes on the wire", Unit::kBytes,
      [](const RunRecord& run) { return Value(totals_of(run).sent_bytes); });
  add(
      "trimmed_packets", "packets trimmed", Unit::kPackets,
      [](const RunRecord& run) { return Value(totals_of(run).trimmed); }, Better::kNeither);
  add("lost_packets", "packets lost", Unit::kPackets,
      [](const RunRecord& run) { return Value(totals_of(run).lost); });
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
