// SPDX-License-Identifier: Apache-2.0
//
// `spillway codec tour`: one gradient, cut and dropped, as a table and as a page with a plot.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/codec/gradient_file.h"
#include "bench/codec/trial.h"
#include "bench/progress.h"
#include "cli/commands.h"
#include "cli/text_table.h"
#include "codec/plane_code.h"
#include "codec/sample_data.h"
#include "plot/svg_chart.h"

namespace spillway::cli {
namespace {

constexpr std::array<unsigned, 5> kCuts = {1024, 512, 256, 206, 128};
constexpr std::array<double, 7> kShares = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0};
constexpr double kTableShare = 0.1;
// Fresh rotations and fresh victims, averaged.
constexpr std::uint32_t kMessages = 32;
constexpr std::size_t kSyntheticValues = std::size_t{1} << 18;

struct CodecTourOptions {
  std::string gradient;
  std::string out = "spillway-tour";
  unsigned mtu = 1500;
  unsigned precision = packetize::kDefaultPrecision;
  bool json = false;
};

struct CutRow {
  unsigned cut_bytes;
  double kept_bytes;  // share of the frame that is left
  double planes;
  double nmse_all;        // every packet cut
  double nmse_some_cut;   // kTableShare of them cut
  double nmse_some_lost;  // kTableShare of them lost instead
};

struct Tour {
  std::string source;
  std::size_t values = 0;
  double nmse_whole = 0.0;
  std::vector<CutRow> rows;
  std::vector<plot::ChartLine> lines;
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

CutRow cut_row(std::span<const float> gradient, const CodecTourOptions& options, unsigned cut) {
  const packetize::PacketLimits fabric{.mtu = options.mtu, .trim_bytes = cut};
  const packetize::Encoding encoding{.precision = options.precision};
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

// One line of the plot: error against the share of packets hit. Losing everything has no estimate,
// so the line of lost packets stops short of it.
plot::ChartLine plot_line(std::span<const float> gradient, const CodecTourOptions& options,
                          unsigned cut) {
  const packetize::PacketLimits fabric{.mtu = options.mtu, .trim_bytes = cut == 0 ? 206 : cut};
  plot::ChartLine line{cut == 0 ? "dropped" : fmt::format("trimmed to {} B", cut), {}};
  for (const double share : kShares) {
    if (cut != 0 || share < 1.0) {
      line.points.emplace_back(
          100 * share,
          mean_trial(gradient, fabric, {.precision = options.precision}, share, cut).nmse);
    }
  }
  return line;
}

Tour take_tour(const CodecTourOptions& options) {
  Tour tour;
  std::vector<float> gradient;
  if (options.gradient.empty()) {
    tour.source = "synthetic heavy-tailed gradient (log-normal, sigma 1.5)";
    gradient = codec::lognormal_values(kSyntheticValues, 1);
  } else {
    tour.source = std::filesystem::path(options.gradient).filename().string();
    gradient = value_or_throw(bench::load_gradient(options.gradient));
  }
  if (!std::isfinite(codec::energy(gradient))) {
    throw CommandError(fmt::format("{} holds values that are not finite: there is no error to show",
                                   options.gradient));
  }
  tour.values = gradient.size();
  bench::Progress progress(2 * kCuts.size() + 2);
  progress.step("whole packets");
  tour.nmse_whole =
      mean_trial(gradient, {.mtu = options.mtu}, {.precision = options.precision}, 0.0, 0).nmse;
  for (const unsigned cut : kCuts) {
    progress.step(fmt::format("cut to {} bytes", cut));
    tour.rows.push_back(cut_row(gradient, options, cut));
  }
  for (const unsigned cut : {0U, 128U, 206U, 256U, 512U}) {
    progress.step("plot");
    tour.lines.push_back(plot_line(gradient, options, cut));
  }
  return tour;
}

TextTable table_of(const CodecTourOptions& options, const Tour& tour) {
  const std::string share = fmt::format("{:.0f} %", 100 * kTableShare);
  TextTable table({"cut to (bytes)", "left of frame", "planes left", "error, all cut",
                   "error, " + share + " cut", "error, " + share + " dropped"});
  table.add_row({"not cut", "100 %", std::to_string(options.precision),
                 format_error(tour.nmse_whole), "", ""});
  for (const CutRow& row : tour.rows) {
    table.add_row({std::to_string(row.cut_bytes), fmt::format("{:.0f} %", 100 * row.kept_bytes),
                   fmt::format("{:.1f}", row.planes), format_error(row.nmse_all),
                   format_error(row.nmse_some_cut), format_error(row.nmse_some_lost)});
  }
  return table;
}

nlohmann::json json_of(const CodecTourOptions& options, const Tour& tour) {
  nlohmann::json out = {{"source", tour.source},
                        {"values", tour.values},
                        {"mtu", options.mtu},
                        {"precision", options.precision},
                        {"nmse_whole", tour.nmse_whole},
                        {"cuts", nlohmann::json::array()}};
  for (const CutRow& row : tour.rows) {
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
<html lang="en"><head><meta charset="utf-8"><title>Spillway: what a cut packet costs</title>
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
</body></html>
)";

void write_page_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream file(path);
  file << content;
  file.close();
  if (!file) {
    throw CommandError(
        fmt::format("cannot write {}: choose another folder with --out", path.string()));
  }
}

// Writes the page, and its plot as a file of its own beside it. Returns the page's path.
std::filesystem::path write_page(const CodecTourOptions& options, const Tour& tour,
                                 const std::string& table) {
  std::error_code error;
  std::filesystem::create_directories(options.out, error);  // a failure shows when writing
  const std::filesystem::path folder(options.out);
  const std::string chart =
      plot::svg_of({.title = "Error against the share of packets that met congestion",
                    .x_label = "packets hit, percent",
                    .y_label = "error (NMSE)",
                    .log_x = true,
                    .log_y = true,
                    .lines = tour.lines});
  write_page_file(folder / "tour.svg", chart);
  write_page_file(
      folder / "tour.html",
      fmt::format(kPage, fmt::arg("source", plot::html_escape(tour.source)),
                  fmt::arg("values", tour.values), fmt::arg("precision", options.precision),
                  fmt::arg("mtu", options.mtu), fmt::arg("chart", chart),
                  fmt::arg("table", plot::html_escape(table))));
  return folder / "tour.html";
}

void tour(const CodecTourOptions& options) {
  const Tour tour = take_tour(options);
  const std::string table = table_of(options, tour).to_string();
  const std::filesystem::path page = write_page(options, tour, table);
  if (options.json) {
    nlohmann::json out = json_of(options, tour);
    out["page"] = page.string();
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print("{}, {} values, {} bits each, MTU {}\n\n{}\n", tour.source, tour.values,
             options.precision, options.mtu, table);
  fmt::print("Error is squared error over energy: 1 is as bad as sending nothing.\n");
  fmt::print("Plot: {}\n", page.string());
}

void add_codec_tour(CLI::App& codec) {
  const auto options = std::make_shared<CodecTourOptions>();
  CLI::App* command =
      codec.add_subcommand("tour", "One gradient, its packets cut and dropped: what it costs");
  command->add_option("--gradient", options->gradient,
                      "File of raw floats (.f32); without it a synthetic gradient");
  command->add_option("--out", options->out, "Folder for the page with the plot")
      ->capture_default_str();
  command->add_option("--mtu", options->mtu, "Bytes of IP packet")->capture_default_str();
  command->add_option("--precision", options->precision, "Bits per value, 1 to 32")
      ->check(CLI::Range(1U, codec::kMaxPlanes))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON instead of a table");
  command->footer(
      "Examples:\n"
      "  spillway codec tour\n"
      "  spillway codec tour --gradient tests/data/gradients/conv_step300.f32 --mtu 9000");
  command->callback([options] { tour(*options); });
}

}  // namespace

void add_codec(CLI::App& app) {
  CLI::App* noun = app.add_subcommand("codec", "Gradient encodings whose packets can be cut");
  noun->require_subcommand(1);
  noun->footer("Example:\n  spillway codec tour");
  add_codec_tour(*noun);
}

}  // namespace spillway::cli
