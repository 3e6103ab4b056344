// SPDX-License-Identifier: Apache-2.0
//
// `spillway codec`: the error of one gradient when its packets are cut or dropped, and its size
// with every codec, as tables and as a page with plots.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>

#include "codec/plane_code.h"
#include "codec/sample_data.h"
#include "tools/bench/codec/accuracy.h"
#include "tools/bench/codec/speed.h"
#include "tools/bench/progress.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"
#include "tools/plot/svg_chart.h"

namespace spillway::cli {
namespace {

// ------------------------------------------------------------------ bits against error

constexpr double kLeastPlottedError = 1e-12;

plot::ChartLine& line_of(const std::string& family, std::vector<plot::ChartLine>& lines) {
  const auto found = std::find_if(lines.begin(), lines.end(), [&](const plot::ChartLine& line) {
    return line.label == family;
  });
  return found != lines.end() ? *found : lines.emplace_back(plot::ChartLine{family, {}});
}

TextTable rates_table(const bench::RateDistortion& rates) {
  TextTable table({"codec", "bits per value", "error", "encode GB/s", "decode GB/s", "table"});
  for (const bench::RatePoint& point : rates.points) {
    table.add_row({point.speed.codec, fmt::format("{:.2f}", point.speed.wire_bits_per_value),
                   format_error(point.nmse),
                   fmt::format("{:.2f}", point.speed.encode_gigabytes_per_second),
                   fmt::format("{:.2f}", point.speed.decode_gigabytes_per_second), point.table});
  }
  return table;
}

nlohmann::json rates_json(const bench::RateDistortion& rates) {
  nlohmann::json out = nlohmann::json::array();
  for (const bench::RatePoint& point : rates.points) {
    out.push_back({{"family", point.family},
                   {"codec", point.speed.codec},
                   {"target", point.speed.target},
                   {"table", point.table},
                   {"bits_per_value", point.speed.wire_bits_per_value},
                   {"nmse", point.nmse},
                   {"encode_gb_per_s", point.speed.encode_gigabytes_per_second},
                   {"decode_gb_per_s", point.speed.decode_gigabytes_per_second}});
  }
  return out;
}

// A line per family. Codecs that lose next to nothing appear only in the table: they would leave no
// room for the others.
plot::Chart rates_chart(const bench::RateDistortion& rates) {
  plot::Chart chart{.title = "Error against bits per value, codec by codec",
                    .x_label = "bits per value",
                    .y_label = "error (NMSE)",
                    .log_y = true,
                    .lines = {}};
  for (const bench::RatePoint& point : rates.points) {
    if (point.nmse >= kLeastPlottedError) {
      line_of(point.family, chart.lines)
          .points.emplace_back(point.speed.wire_bits_per_value, point.nmse);
    }
  }
  return chart;
}

// ------------------------------------------------------------------ the comparison

constexpr std::array<unsigned, 5> kCuts = {1024, 512, 256, 206, 128};
constexpr std::array<unsigned, 5> kPlottedCuts = {0, 128, 206, 256, 512};  // 0: dropped
constexpr std::array<double, 7> kShares = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0};
constexpr double kTableShare = 0.1;
// Averages over fresh rotations and fresh victims.
constexpr std::uint32_t kMessages = 32;
constexpr std::size_t kSyntheticValues = std::size_t{1} << 18;
// As packetize/packet_plan.cc allows.
constexpr unsigned kMinMtu = 576;
constexpr unsigned kMaxMtu = 9000;

struct CodecOptions {
  std::string gradient;
  std::string previous;
  std::string out = "spillway-codec";
  unsigned mtu = 1500;
  unsigned bits = packetize::kDefaultPrecision;
  bool json = false;
};

struct CutRow {
  unsigned cut_bytes;
  double kept_bytes;  // remaining share of the frame
  double planes;
  double nmse_all;        // every packet cut
  double nmse_some_cut;   // kTableShare of the packets cut
  double nmse_some_lost;  // kTableShare of the packets lost instead
};

struct Comparison {
  std::string source;
  std::size_t values = 0;
  double nmse_whole = 0.0;
  std::vector<CutRow> rows;
  std::vector<plot::ChartLine> lines;
  bench::RateDistortion rates;
};

struct MeanTrial {
  double nmse = 0.0;
  double planes = 0.0;
};

MeanTrial mean_trial(std::span<const float> gradient, const packetize::PacketLimits& fabric,
                     const packetize::Encoding& encoding, double share, std::size_t frame_bytes) {
  MeanTrial mean;
  for (std::uint32_t step = 0; step < kMessages; ++step) {
    const bench::TrialResult trial = bench::run_trial(
        gradient, fabric, encoding, step, bench::hit_some(fabric, share, frame_bytes, step));
    mean.nmse += trial.nmse / kMessages;
    mean.planes += trial.report.mean_planes() / kMessages;
  }
  return mean;
}

CutRow cut_row(std::span<const float> gradient, const CodecOptions& options, unsigned cut) {
  const packetize::PacketLimits fabric{.mtu = options.mtu, .trim_bytes = cut};
  const packetize::Encoding encoding{.precision = options.bits};
  const packetize::PacketPlan plan =
      value_or_throw(packetize::PacketPlan::make(gradient.size(), fabric, encoding));
  const double frame = static_cast<double>(plan.max_packet_size() + fabric.frame_overhead());
  const MeanTrial all = mean_trial(gradient, fabric, encoding, 1.0, cut);
  return {cut,
          std::min(1.0, cut / frame),
          all.planes,
          all.nmse,
          mean_trial(gradient, fabric, encoding, kTableShare, cut).nmse,
          mean_trial(gradient, fabric, encoding, kTableShare, 0).nmse};
}

// One line of the plot: error against the share of packets hit. If all packets are lost there is no
// estimate, so the line of lost packets ends before that.
plot::ChartLine plot_line(std::span<const float> gradient, const CodecOptions& options,
                          unsigned cut) {
  const packetize::PacketLimits fabric{.mtu = options.mtu, .trim_bytes = cut == 0 ? 206 : cut};
  plot::ChartLine line{cut == 0 ? "dropped" : fmt::format("trimmed to {} B", cut), {}};
  for (const double share : kShares) {
    if (cut != 0 || share < 1.0) {
      line.points.emplace_back(
          100 * share, mean_trial(gradient, fabric, {.precision = options.bits}, share, cut).nmse);
    }
  }
  return line;
}

std::vector<float> finite_gradient(const std::string& path) {
  std::vector<float> gradient = value_or_throw(bench::load_gradient(path));
  if (!std::isfinite(codec::energy(gradient))) {
    throw CommandError(
        fmt::format("{} holds values that are not finite: there is no error to show", path));
  }
  return gradient;
}

void take_cuts(std::span<const float> gradient, const CodecOptions& options,
               bench::Progress& progress, Comparison& compared) {
  progress.step("whole packets");
  compared.nmse_whole =
      mean_trial(gradient, {.mtu = options.mtu}, {.precision = options.bits}, 0.0, 0).nmse;
  for (const unsigned cut : kCuts) {
    progress.step(fmt::format("cut to {} bytes", cut));
    compared.rows.push_back(cut_row(gradient, options, cut));
  }
  for (const unsigned cut : kPlottedCuts) {
    progress.step("plot");
    compared.lines.push_back(plot_line(gradient, options, cut));
  }
}

std::vector<float> previous_gradient(const std::string& path, std::size_t values) {
  std::vector<float> previous = finite_gradient(path);
  if (previous.size() != values) {
    throw CommandError(fmt::format(
        "{} has {} values and the gradient {}: give --previous a step of the same tensor", path,
        previous.size(), values));
  }
  return previous;
}

Comparison compare_codecs(const CodecOptions& options) {
  Comparison compared;
  std::vector<float> gradient;
  if (options.gradient.empty()) {
    compared.source = "synthetic heavy-tailed gradient (log-normal, sigma 1.5)";
    gradient = codec::lognormal_values(kSyntheticValues, 1);
  } else {
    compared.source = std::filesystem::path(options.gradient).filename().string();
    gradient = finite_gradient(options.gradient);
  }
  const std::vector<float> previous = options.previous.empty()
                                          ? std::vector<float>()
                                          : previous_gradient(options.previous, gradient.size());
  compared.values = gradient.size();
  bench::Progress progress(1 + kCuts.size() + kPlottedCuts.size() + bench::rate_steps());
  take_cuts(gradient, options, progress, compared);
  compared.rates = bench::measure_rates({gradient, previous}, progress);
  return compared;
}

TextTable table_of(const CodecOptions& options, const Comparison& compared) {
  const std::string share = fmt::format("{:.0f} %", 100 * kTableShare);
  TextTable table({"cut to (bytes)", "left of frame", "planes left", "error, all cut",
                   "error, " + share + " cut", "error, " + share + " dropped"});
  table.add_row({"not cut", "100 %", std::to_string(options.bits),
                 format_error(compared.nmse_whole), "", ""});
  for (const CutRow& row : compared.rows) {
    table.add_row({std::to_string(row.cut_bytes), fmt::format("{:.0f} %", 100 * row.kept_bytes),
                   fmt::format("{:.1f}", row.planes), format_error(row.nmse_all),
                   format_error(row.nmse_some_cut), format_error(row.nmse_some_lost)});
  }
  return table;
}

nlohmann::json json_of(const CodecOptions& options, const Comparison& compared) {
  nlohmann::json out = {{"source", compared.source},
                        {"values", compared.values},
                        {"mtu", options.mtu},
                        {"precision", options.bits},
                        {"nmse_whole", compared.nmse_whole},
                        {"cuts", nlohmann::json::array()},
                        {"rates", rates_json(compared.rates)},
                        {"rates_left_out", compared.rates.left_out}};
  for (const CutRow& row : compared.rows) {
    out["cuts"].push_back({{"cut_bytes", row.cut_bytes},
                           {"kept_bytes", row.kept_bytes},
                           {"planes", row.planes},
                           {"nmse_all_cut", row.nmse_all},
                           {"nmse_tenth_cut", row.nmse_some_cut},
                           {"nmse_tenth_dropped", row.nmse_some_lost}});
  }
  return out;
}

constexpr const char* kPage = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Spillway: what a gradient costs</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }}
pre {{ overflow-x: auto; font-size: 13px; }}
svg {{ width: 100%; height: auto; }}
</style></head><body>
<h1>What a cut packet costs</h1>
<p>{source}: {values} values, {precision} bits each, MTU {mtu}. Error is squared error over the
gradient's energy: 1 is as bad as sending nothing.</p>
{chart}
<pre>{table}</pre>
<p>A switch that is full cuts a Spillway packet instead of dropping it. What is left still estimates
every value of the packet, so the same congestion costs a fraction of the error.</p>
<h1>What fewer bits cost</h1>
<p>All codecs on the same gradient: bits that one worker sends of its own values, against
error; gigabytes of fp32 a second on one core.</p>
{rates_chart}
<pre>{rates}</pre>
<p>{notes}</p>
</body></html>
)";

void write_page_file(const std::filesystem::path& path, const std::string& content) {
  write_output(path.string(), content, {}, "; choose another folder with --out");
}

// The notes below the rates table.
std::string rate_notes(const Comparison& compared) {
  return fmt::format(
      "Integers of entropy are rounded to the nearest with one scale, and coded by the table named "
      "here.\n"
      "Sums of n ranks take up to log2(n) bits more; levels and blocks have room for those of {}.\n"
      "Planes can be cut, and their speed includes making packets.\n"
      "{}\n",
      bench::kSumSpeedRanks, compared.rates.left_out);
}

// Writes the page, and its plots as separate files beside it. Returns the page's path.
std::filesystem::path write_page(const CodecOptions& options, const Comparison& compared,
                                 const std::string& table, const std::string& rates) {
  std::error_code error;
  std::filesystem::create_directories(options.out, error);  // the writes below report a failure
  const std::filesystem::path folder(options.out);
  const std::string chart =
      plot::svg_of({.title = "Error against the share of packets that met congestion",
                    .x_label = "packets hit, percent",
                    .y_label = "error (NMSE)",
                    .log_x = true,
                    .log_y = true,
                    .lines = compared.lines});
  const std::string rates_plot = plot::svg_of(rates_chart(compared.rates));
  write_page_file(folder / "trimming.svg", chart);
  write_page_file(folder / "rates.svg", rates_plot);
  write_page_file(
      folder / "codec.html",
      fmt::format(kPage, fmt::arg("source", plot::html_escape(compared.source)),
                  fmt::arg("values", compared.values), fmt::arg("precision", options.bits),
                  fmt::arg("mtu", options.mtu), fmt::arg("chart", chart),
                  fmt::arg("table", plot::html_escape(table)), fmt::arg("rates_chart", rates_plot),
                  fmt::arg("rates", plot::html_escape(rates)),
                  fmt::arg("notes", plot::html_escape(rate_notes(compared)))));
  return folder / "codec.html";
}

void run(const CodecOptions& options) {
  const Comparison compared = compare_codecs(options);
  const std::string table = table_of(options, compared).to_string();
  const std::string rates = rates_table(compared.rates).to_string();
  const std::filesystem::path page = write_page(options, compared, table, rates);
  if (options.json) {
    nlohmann::json out = json_of(options, compared);
    out["page"] = page.string();
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print("{}, {} values, {} bits each, MTU {}\n\n{}\n", compared.source, compared.values,
             options.bits, options.mtu, table);
  fmt::print("Error is squared error over energy: 1 is as bad as sending nothing.\n\n");
  fmt::print("All codecs, on one core:\n\n{}\n{}", rates, rate_notes(compared));
  fmt::print("Plots: {}\n", page.string());
}

}  // namespace

void add_codec(CLI::App& app) {
  const auto options = std::make_shared<CodecOptions>();
  CLI::App* command = app.add_subcommand(
      "codec", "Compare all codecs on your gradient: error when packets are cut, bits and speed");
  command->add_option("--gradient", options->gradient,
                      "File of raw floats (.f32); without it a synthetic gradient");
  command->add_option("--previous", options->previous,
                      "The same tensor one step before (.f32), for codecs that remember it");
  command->add_option("--out", options->out, "Folder for the page with the plots")
      ->capture_default_str();
  command->add_option("--mtu", options->mtu, "Bytes of an IP packet")
      ->capture_default_str()
      ->check(whole_number(kMinMtu, kMaxMtu));
  command->add_option("--bits", options->bits, "Bits per value of packets that are cut, 1 to 32")
      ->check(whole_number(1, codec::kMaxPlanes))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON instead of a table");
  command->footer(
      "Examples:\n"
      "  spillway codec\n"
      "  spillway codec --gradient tests/data/gradients/conv_step300.f32 --mtu 9000\n"
      "  spillway codec --gradient step11.f32 --previous step10.f32");
  command->callback([options] { run(*options); });
}

}  // namespace spillway::cli
