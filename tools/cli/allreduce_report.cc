// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/allreduce_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/version.h"
#include "tools/bench/allreduce/measure.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

constexpr int kTimeWidth = 7;
constexpr int kBandwidthWidth = 6;
constexpr double kMicroseconds = 1e6;

// Prints as many digits as fit.
std::string fitted(double value, int width) {
  int digits = 0;
  for (double power = 1.0; value >= power && digits <= width; power *= 10.0) {
    ++digits;
  }
  if (digits <= width) {
    const int decimals = digits < width - 2 ? 2 : digits < width - 1 ? 1 : 0;
    return fmt::format("{:{}.{}f}", value, width, decimals);
  }
  return fmt::format("{:{}.{}e}", value, width, width >= kTimeWidth ? 1 : 0);
}

std::string time_cell(double seconds) {
  return "  " + fitted(seconds * kMicroseconds, kTimeWidth);
}

std::string speed_cells(std::size_t bytes, double seconds, unsigned world) {
  const bench::Bandwidth bandwidth = bench::allreduce_bandwidth(bytes, seconds, world);
  return fmt::format("{}  {}  {}", time_cell(seconds), fitted(bandwidth.algorithm, kBandwidthWidth),
                     fitted(bandwidth.bus, kBandwidthWidth));
}

std::string iteration_cells(const bench::TimeSummary& times) {
  return time_cell(times.min) + time_cell(times.max) + time_cell(times.p99) + "  " +
         fitted(times.variation_percent, kTimeWidth);
}

std::string pass_cells(std::size_t bytes, const bench::AllreducePass& pass,
                       const TableStyle& style) {
  const bench::TimeSummary times = bench::summarise_times(pass.seconds);
  const std::string wrong = pass.wrong ? fmt::format("{:g}", *pass.wrong) : "N/A";
  return speed_cells(bytes, times.mean, style.world) + fmt::format("  {:>6}", wrong) +
         (style.per_iteration ? iteration_cells(times) : "");
}

std::string percent(double part, double all) {
  return all > 0.0 ? fmt::format("{:.3f}", 100.0 * part / all) : "N/A";
}

std::string own_cells(const bench::AllreduceRow& row, const TableStyle& style) {
  const std::optional<double> wire = row.wire_bytes_per_element(style.world);
  std::string cells =
      fmt::format("  {:>8}  {:>7}  {:>7}  {:>8}", wire ? fmt::format("{:.3f}", *wire) : "N/A",
                  percent(row.traffic.trimmed, row.traffic.packets),
                  percent(row.traffic.missing, row.traffic.packets),
                  row.nmse ? format_error(*row.nmse) : "N/A");
  if (style.per_iteration) {
    cells += time_cell(bench::summarise_times(row.out_of_place.seconds).p50) +
             time_cell(bench::summarise_times(row.in_place.seconds).p50);
  }
  return cells;
}

struct Headings {
  const char* time;
  const char* bandwidth;
  const char* bus;
  const char* wrong;
  const char* min;
  const char* max;
  const char* p99;
  const char* variation;
};

std::string pass_headings(const Headings& words, bool per_iteration) {
  std::string text = fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", words.time, words.bandwidth,
                                 words.bus, words.wrong);
  if (per_iteration) {
    text += fmt::format("  {:>7}  {:>7}  {:>7}  {:>7}", words.min, words.max, words.p99,
                        words.variation);
  }
  return text;
}

std::string headings_line(const std::string& what, const Headings& words, const std::string& own,
                          bool per_iteration) {
  const std::string pass = pass_headings(words, per_iteration);
  return what + pass + pass + " " + own + "\n";
}

std::string what_headings(const char* size, const char* count, const char* type, const char* op,
                          const char* root) {
  return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", size, count, type, op, root);
}

std::string first_line(bool per_iteration) {
  const char* groups =
      per_iteration ? "              out-of-place (+ per-iteration)                                "
                      "in-place (+ per-iteration)\n"
                    : "           out-of-place                       in-place          \n";
  return what_headings("", "", "", "", "") + groups;
}

}  // namespace

std::string table_header(const TableStyle& style) {
  const Headings names = {"time", "algbw", "busbw", "#wrong", "i_min", "i_max", "i_p99", "i_cv%"};
  const Headings units = {"(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", "(%)"};
  const std::string own_names =
      fmt::format(" {:>8}  {:>7}  {:>7}  {:>8}{}", "wire", "trimmed", "lost", "NMSE",
                  style.per_iteration ? "    i_p50    i_p50" : "");
  const std::string own_units =
      fmt::format(" {:>8}  {:>7}  {:>7}  {:>8}{}", "(B/elem)", "(%)", "(%)", "",
                  style.per_iteration ? "    (out)     (in)" : "");
  return "#\n" + first_line(style.per_iteration) +
         headings_line(what_headings("size", "count", "type", "redop", "root"), names, own_names,
                       style.per_iteration) +
         headings_line(what_headings("(B)", "(elements)", "", "", ""), units, own_units,
                       style.per_iteration);
}

std::string table_row(const bench::AllreduceRow& row, const bench::AllreduceWork& work,
                      const TableStyle& style) {
  return fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:>6}", row.bytes, row.count,
                     collective::nccl_tests_name(work.type), bench::redop_name(work.op), -1) +
         pass_cells(row.bytes, row.out_of_place, style) +
         pass_cells(row.bytes, row.in_place, style) + own_cells(row, style) + "\n";
}

std::string rival_line(const RivalRow& rival, const bench::AllreduceRow& row,
                       const TableStyle& style) {
  if (rival.times.seconds.empty()) {
    return fmt::format("# {}: not measured: {}\n", rival.name, rival.times.why_not);
  }
  const bench::TimeSummary ours = bench::summarise_times(row.in_place.seconds);
  const bench::TimeSummary theirs = bench::summarise_times(rival.times.seconds);
  constexpr std::size_t kWhat = 52;
  const std::size_t before = kWhat + pass_cells(row.bytes, row.out_of_place, style).size();
  std::string line = fmt::format("{:<{}}{}", "# " + rival.name, before,
                                 speed_cells(row.bytes, theirs.mean, style.world));
  line += fmt::format("  Spillway / {}: busbw {:.2f}", rival.name, theirs.mean / ours.mean);
  if (style.per_iteration) {
    line += fmt::format(", p99 time {:.2f}", ours.p99 / theirs.p99);
  }
  return line + "\n";
}

TableTotals totals_of(const std::vector<MeasuredSize>& sizes, unsigned world) {
  TableTotals totals;
  for (const MeasuredSize& size : sizes) {
    const bench::AllreduceRow& row = size.row;
    for (const bench::AllreducePass* pass : {&row.out_of_place, &row.in_place}) {
      totals.wrong += pass->wrong.value_or(0.0);
      totals.average_bus_bandwidth +=
          bench::allreduce_bandwidth(row.bytes, bench::summarise_times(pass->seconds).mean, world)
              .bus /
          static_cast<double>(2 * sizes.size());
    }
  }
  return totals;
}

std::string table_footer(const TableTotals& totals) {
  return fmt::format(
      "# {:<20} : {:g} {}\n# {:<20} : {:g} \n#\n# Collective test concluded: all_reduce_perf\n",
      "Out of bounds values", totals.wrong, totals.wrong == 0.0 ? "OK" : "FAILED",
      "Avg bus bandwidth", totals.average_bus_bandwidth);
}

namespace {

nlohmann::json number_or_null(const std::optional<double>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

nlohmann::json times_json(const std::vector<double>& seconds) {
  const bench::TimeSummary times = bench::summarise_times(seconds);
  nlohmann::json all = nlohmann::json::array();
  for (const double time : seconds) {
    all.push_back(time * 1e6);
  }
  return {{"min_us", times.min * 1e6},         {"max_us", times.max * 1e6},
          {"avg_us", times.mean * 1e6},        {"p50_us", times.p50 * 1e6},
          {"p99_us", times.p99 * 1e6},         {"stdev_us", times.deviation * 1e6},
          {"cv_pct", times.variation_percent}, {"times_us", all}};
}

nlohmann::json speed_json(std::size_t bytes, const std::vector<double>& seconds, unsigned world) {
  const double mean = bench::summarise_times(seconds).mean;
  const bench::Bandwidth bandwidth = bench::allreduce_bandwidth(bytes, mean, world);
  return {{"time", mean * 1e6}, {"alg_bw", bandwidth.algorithm}, {"bus_bw", bandwidth.bus}};
}

nlohmann::json pass_json(std::size_t bytes, const bench::AllreducePass& pass, unsigned world) {
  nlohmann::json out = speed_json(bytes, pass.seconds, world);
  out["nwrong"] = number_or_null(pass.wrong);
  return out;
}

nlohmann::json rival_json(const RivalRow& rival, const bench::AllreduceRow& row, unsigned world) {
  if (rival.times.seconds.empty()) {
    return {{"not_measured", rival.times.why_not}};
  }
  const bench::TimeSummary ours = bench::summarise_times(row.in_place.seconds);
  const bench::TimeSummary theirs = bench::summarise_times(rival.times.seconds);
  nlohmann::json out = speed_json(row.bytes, rival.times.seconds, world);
  out["per_iter"] = times_json(rival.times.seconds);
  out["bus_bw_ratio"] = theirs.mean / ours.mean;
  out["p99_ratio"] = ours.p99 / theirs.p99;
  return out;
}

nlohmann::json traffic_json(const bench::AllreduceRow& row, unsigned world) {
  return {{"wire_bytes_per_element", number_or_null(row.wire_bytes_per_element(world))},
          {"parts_added", row.traffic.added},
          {"parts_alone", row.traffic.alone},
          {"chunks_flushed", row.traffic.flushed},
          {"values_clipped", row.traffic.clipped},
          {"wire_bytes", row.traffic.wire_bytes},
          {"packets", row.traffic.packets},
          {"trimmed", row.traffic.trimmed},
          {"missing", row.traffic.missing},
          {"repeated", row.traffic.repeated}};
}

nlohmann::json size_json(const MeasuredSize& size, const bench::AllreduceWork& work,
                         unsigned world) {
  const bench::AllreduceRow& row = size.row;
  nlohmann::json out = {{"size", row.bytes},
                        {"count", row.count},
                        {"type", collective::nccl_tests_name(work.type)},
                        {"redop", bench::redop_name(work.op)},
                        {"root", "    -1"},
                        {"out_of_place", pass_json(row.bytes, row.out_of_place, world)},
                        {"in_place", pass_json(row.bytes, row.in_place, world)},
                        {"out_of_place_per_iter", times_json(row.out_of_place.seconds)},
                        {"in_place_per_iter", times_json(row.in_place.seconds)},
                        {"actual_iterations", work.iterations},
                        {"experiment_name", "AllReduce"},
                        {"algorithm", collective::algorithm_name(row.algorithm)},
                        {"traffic", traffic_json(row, world)},
                        {"nmse", number_or_null(row.nmse)},
                        {"rivals", nlohmann::json::object()}};
  out["replicas_agree"] =
      row.replicas_agree ? nlohmann::json(*row.replicas_agree) : nlohmann::json();
  for (const RivalRow& rival : size.rivals) {
    out["rivals"][rival.name] = rival_json(rival, row, world);
  }
  return out;
}

nlohmann::json config_json(const bench::AllreduceWork& work, unsigned world) {
  nlohmann::json out = {{"ranks", world},
                        {"minimum_bytes", work.sizes.front()},
                        {"maximum_bytes", work.sizes.back()},
                        {"warmup_iters", work.warmup},
                        {"iterations", work.iterations},
                        {"validation", work.checks},
                        {"in_flight", work.in_flight},
                        {"priority", work.priority},
                        {"algorithm", collective::algorithm_name(work.algorithm)},
                        {"mode", work.tolerance ? "tolerant" : "exact"}};
  if (work.tolerance) {
    out["tolerance"] = {{"codec", collective::codec_name(work.tolerance->codec)},
                        {"precision", work.tolerance->precision},
                        {"gather_precision", work.tolerance->gather_precision},
                        {"loss_bound_ppm", work.tolerance->loss_bound_ppm},
                        {"least_contributors", work.tolerance->least_contributors}};
  }
  return out;
}

}  // namespace

std::string allreduce_json(const bench::AllreduceWork& work, const std::vector<MeasuredSize>& sizes,
                           unsigned world) {
  const TableTotals totals = totals_of(sizes, world);
  nlohmann::json out = {
      {"version", 2},
      {"spillway_version", base::kVersion},
      {"config", config_json(work, world)},
      {"results", nlohmann::json::array()},
      {"out_of_bounds",
       {{"count", totals.wrong}, {"okay", totals.wrong == 0.0 ? "true" : "false"}}},
      {"average_bus_bandwidth",
       {{"bandwidth", totals.average_bus_bandwidth}, {"okay", "unchecked"}}}};
  for (const MeasuredSize& size : sizes) {
    out["results"].push_back(size_json(size, work, world));
  }
  return out.dump(2) + "\n";
}

}  // namespace spillway::cli
