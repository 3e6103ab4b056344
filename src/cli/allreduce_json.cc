// SPDX-License-Identifier: Apache-2.0
#include "cli/allreduce_json.h"

#include <nlohmann/json.hpp>

#include "base/version.h"
#include "cli/allreduce_times.h"

namespace spillway::cli {
namespace {

nlohmann::json number_or_null(const std::optional<double>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

nlohmann::json times_json(const std::vector<double>& seconds) {
  const TimeSummary times = summarise_times(seconds);
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
  const double mean = summarise_times(seconds).mean;
  const Bandwidth bandwidth = allreduce_bandwidth(bytes, mean, world);
  return {{"time", mean * 1e6}, {"alg_bw", bandwidth.algorithm}, {"bus_bw", bandwidth.bus}};
}

nlohmann::json pass_json(std::size_t bytes, const AllreducePass& pass, unsigned world) {
  nlohmann::json out = speed_json(bytes, pass.seconds, world);
  out["nwrong"] = number_or_null(pass.wrong);
  return out;
}

nlohmann::json rival_json(const RivalRow& rival, const AllreduceRow& row, unsigned world) {
  if (rival.times.seconds.empty()) {
    return {{"not_measured", rival.times.why_not}};
  }
  const TimeSummary ours = summarise_times(row.in_place.seconds);
  const TimeSummary theirs = summarise_times(rival.times.seconds);
  nlohmann::json out = speed_json(row.bytes, rival.times.seconds, world);
  out["per_iter"] = times_json(rival.times.seconds);
  out["bus_bw_ratio"] = theirs.mean / ours.mean;
  out["p99_ratio"] = ours.p99 / theirs.p99;
  return out;
}

nlohmann::json traffic_json(const AllreduceRow& row, unsigned world) {
  return {{"wire_bytes_per_element", number_or_null(row.wire_bytes_per_element(world))},
          {"wire_bytes", row.traffic.wire_bytes},
          {"packets", row.traffic.packets},
          {"trimmed", row.traffic.trimmed},
          {"missing", row.traffic.missing},
          {"repeated", row.traffic.repeated}};
}

nlohmann::json size_json(const MeasuredSize& size, const AllreduceSettings& settings,
                         unsigned world) {
  const AllreduceRow& row = size.row;
  nlohmann::json out = {{"size", row.bytes},
                        {"count", row.count},
                        {"type", collective::nccl_tests_name(settings.type)},
                        {"redop", redop_name(settings.op)},
                        {"root", "    -1"},
                        {"out_of_place", pass_json(row.bytes, row.out_of_place, world)},
                        {"in_place", pass_json(row.bytes, row.in_place, world)},
                        {"out_of_place_per_iter", times_json(row.out_of_place.seconds)},
                        {"in_place_per_iter", times_json(row.in_place.seconds)},
                        {"actual_iterations", settings.iterations},
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

nlohmann::json config_json(const AllreduceSettings& settings, unsigned world) {
  nlohmann::json out = {{"ranks", world},
                        {"minimum_bytes", settings.sizes.front()},
                        {"maximum_bytes", settings.sizes.back()},
                        {"warmup_iters", settings.warmup},
                        {"iterations", settings.iterations},
                        {"validation", settings.checks},
                        {"in_flight", settings.in_flight},
                        {"priority", settings.priority},
                        {"algorithm", collective::algorithm_name(settings.algorithm)},
                        {"mode", settings.tolerance ? "tolerant" : "exact"}};
  if (settings.tolerance) {
    out["tolerance"] = {{"precision", settings.tolerance->precision},
                        {"gather_precision", settings.tolerance->gather_precision},
                        {"loss_ppm", settings.tolerance->bound_ppm},
                        {"least_contributors", settings.tolerance->least_contributors},
                        {"lossy_gather", settings.tolerance->lossy_gather}};
  }
  return out;
}

}  // namespace

std::string allreduce_json(const AllreduceSettings& settings,
                           const std::vector<MeasuredSize>& sizes, unsigned world) {
  const TableTotals totals = totals_of(sizes, world);
  nlohmann::json out = {
      {"version", 2},
      {"spillway_version", base::kVersion},
      {"config", config_json(settings, world)},
      {"results", nlohmann::json::array()},
      {"out_of_bounds",
       {{"count", totals.wrong}, {"okay", totals.wrong == 0.0 ? "true" : "false"}}},
      {"average_bus_bandwidth",
       {{"bandwidth", totals.average_bus_bandwidth}, {"okay", "unchecked"}}}};
  for (const MeasuredSize& size : sizes) {
    out["results"].push_back(size_json(size, settings, world));
  }
  return out.dump(2) + "\n";
}

}  // namespace spillway::cli
