// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "lab/compare/comparison.h"

namespace spillway::compare {
namespace {

// Shorter intervals are skipped: a run's last sample may follow the one before immediately.
constexpr double kMinRateSeconds = 0.02;

// Number of neighbours that become one point.
std::size_t stride_for(std::size_t count, std::size_t most) {
  return std::max<std::size_t>(1, (count + most - 1) / most);
}

template <typename PointsOf>
std::vector<plot::ChartLine> lines_of(const Comparison& comparison, PointsOf points_of) {
  std::vector<plot::ChartLine> lines;
  for (const RunRecord& run : comparison.runs) {
    lines.push_back({run.transport.name, points_of(run)});
  }
  return lines;
}

template <typename ValueOf>
Points samples_of(const RunRecord& run, ValueOf value_of) {
  Points points;
  for (const lab::FabricSample& sample : run.samples) {
    points.emplace_back(static_cast<double>(sample.at.count()) * 1e-9,
                        static_cast<double>(value_of(sample)));
  }
  return points;
}

Points accuracies_of(const RunRecord& run) {
  Points points;
  for (const LogEvaluation& evaluation : run.log.evaluations) {
    points.emplace_back(evaluation.seconds, evaluation.accuracy * 100);
  }
  return peaks_of(points, kMaxChartPoints);
}

Points losses_of(const RunRecord& run) {
  Points points;
  for (const LogStep& step : run.log.steps) {
    if (step.loss) {
      points.emplace_back(step.seconds, *step.loss);
    }
  }
  return peaks_of(points, kMaxChartPoints);
}

Points step_times_of(const RunRecord& run) {
  std::vector<double> times = steady_step_times(run);
  std::sort(times.begin(), times.end());
  Points points;
  const std::size_t stride = stride_for(times.size(), kMaxChartPoints);
  for (std::size_t i = 0; i < times.size(); i += stride) {
    const std::size_t last = std::min(i + stride, times.size()) - 1;
    points.emplace_back(times[last],
                        100.0 * static_cast<double>(last + 1) / static_cast<double>(times.size()));
  }
  return points;
}

using OptionalTime = std::optional<double>;

// ": 5.00x = 2.50 x 2.00 x 1.00", by bits, transport and scheduling; unknown factors are left out.
std::string gain_text(const GainSplit& split, const std::string& transport) {
  const auto share = std::ranges::find(split.shares, transport, &GainShare::name);
  if (share == split.shares.end() || !share->gain) {
    return {};
  }
  std::string text = fmt::format(": {}", ratio_text(*share->gain));
  if (share->bits && share->transport) {
    text += fmt::format(" = {:.2f} x {:.2f}", *share->bits, *share->transport);
    text += share->scheduling ? fmt::format(" x {:.2f}", *share->scheduling) : "";
  }
  return text;
}

bool was_evaluated(const Comparison& comparison) {
  return std::any_of(comparison.runs.begin(), comparison.runs.end(),
                     [](const RunRecord& run) { return !run.log.evaluations.empty(); });
}

// Plots a counter of the samples as packets per second.
template <typename Count>
plot::Chart rate_chart(const Comparison& comparison, const char* title, Count count) {
  plot::Chart chart;
  chart.title = title;
  chart.x_label = "seconds";
  chart.y_label = "packets a second";
  chart.lines = lines_of(comparison, [count](const RunRecord& run) {
    return rates_of(samples_of(run, count), kMaxChartPoints);
  });
  return chart;
}

}  // namespace

Points peaks_of(const Points& points, std::size_t most) {
  const std::size_t stride = stride_for(points.size(), most);
  Points peaks;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i % stride == 0) {
      peaks.push_back(points[i]);
    }
    peaks.back() = {points[i].first, std::max(peaks.back().second, points[i].second)};
  }
  return peaks;
}

Points rates_of(const Points& points, std::size_t most) {
  const std::size_t stride = stride_for(points.size(), most);
  Points rates;
  std::size_t before = 0;
  for (std::size_t i = stride; i < points.size(); i += stride) {
    const double seconds = points[i].first - points[before].first;
    if (seconds >= kMinRateSeconds) {
      rates.emplace_back(points[i].first, (points[i].second - points[before].second) / seconds);
      before = i;
    }
  }
  return rates;
}

plot::BarChart overview_chart(const Comparison& comparison) {
  const std::vector<Metric> metrics = metrics_of(comparison);
  const auto values_of = [&metrics](std::string_view key) -> const std::vector<OptionalTime>& {
    return std::ranges::find(metrics, key, &Metric::key)->values;
  };
  const std::optional<GainSplit> split = split_of(comparison);
  plot::BarChart chart;
  chart.title = split ? fmt::format("Median step; gain over {} = bits x transport (x scheduling)",
                                    split->baseline)
                      : std::string("Median step");
  chart.x_label = "milliseconds; tick: 99th percentile";
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    const Transport& transport = comparison.runs[i].transport;
    const OptionalTime median = values_of("step_p50_ms")[i];
    std::string note = median ? value_text(Unit::kMilliseconds, *median) : "no step times";
    if (split) {
      note += gain_text(*split, transport.name);
    }
    chart.bars.push_back({transport.title, median, values_of("step_p99_ms")[i], std::move(note)});
  }
  return chart;
}

plot::Chart accuracy_chart(const Comparison& comparison) {
  plot::Chart chart;
  chart.x_label = "seconds since the command's own beginning";
  if (!was_evaluated(comparison)) {
    chart.title = "Loss against time";
    chart.y_label = "loss";
    chart.lines = lines_of(comparison, losses_of);
    return chart;
  }
  chart.title = "Accuracy against time";
  chart.y_label = "accuracy, percent";
  chart.lines = lines_of(comparison, accuracies_of);
  if (const std::optional<double> target = target_accuracy(comparison); target) {
    chart.guides = {{*target * 100, fmt::format("target: {:.1f} %", *target * 100)}};
  }
  return chart;
}

plot::Chart step_time_chart(const Comparison& comparison) {
  plot::Chart chart;
  chart.title = "Step times";
  chart.x_label = "milliseconds (logarithmic)";
  chart.y_label = "steps that took at most so long, percent";
  chart.log_x = true;
  chart.lines = lines_of(comparison, step_times_of);
  chart.guides = {{50, "median"}, {99, "99th percentile"}};
  return chart;
}

plot::Chart queue_chart(const Comparison& comparison) {
  plot::Chart chart;
  chart.title = "Deepest switch queue";
  chart.x_label = "seconds";
  chart.y_label = "KiB";
  chart.lines = lines_of(comparison, [](const RunRecord& run) {
    return peaks_of(
        samples_of(run, [](const auto& sample) { return sample.deepest_bytes / 1024.0; }),
        kMaxChartPoints);
  });
  return chart;
}

plot::Chart trim_chart(const Comparison& comparison) {
  return rate_chart(comparison, "Trimmed packets",
                    [](const auto& sample) { return sample.trimmed; });
}

plot::Chart loss_chart(const Comparison& comparison) {
  return rate_chart(comparison, "Lost packets", [](const auto& sample) { return sample.lost; });
}

}  // namespace spillway::compare
