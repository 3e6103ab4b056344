// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/split.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::compare {
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
      "scheduling. The same bits on TCP are {0}'s for spillway-exact, tcp-fp16's for spillway-16, "
      "and those of spillway-over-tcp, which has Spillway's own codec and collectives, for "
      "spillway; tcp-fp16 and spillway-over-tcp run over TCP cubic. Scheduling is what sending "
      "front layers first gains, over spillway-flat; where that is not compared, it is part of the "
      "transport.",
      split.baseline, split.metric.label);
}

}  // namespace spillway::compare
