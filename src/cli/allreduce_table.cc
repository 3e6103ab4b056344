// SPDX-License-Identifier: Apache-2.0
#include "cli/allreduce_table.h"

#include <fmt/format.h>

#include "cli/allreduce_times.h"
#include "cli/text_table.h"

namespace spillway::cli {
namespace {

constexpr int kTimeWidth = 7;
constexpr int kBandwidthWidth = 6;
constexpr double kMicroseconds = 1e6;

// As many digits as fit.
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
  const Bandwidth bandwidth = allreduce_bandwidth(bytes, seconds, world);
  return fmt::format("{}  {}  {}", time_cell(seconds), fitted(bandwidth.algorithm, kBandwidthWidth),
                     fitted(bandwidth.bus, kBandwidthWidth));
}

std::string iteration_cells(const TimeSummary& times) {
  return time_cell(times.min) + time_cell(times.max) + time_cell(times.p99) + "  " +
         fitted(times.variation_percent, kTimeWidth);
}

std::string pass_cells(std::size_t bytes, const AllreducePass& pass, const TableStyle& style) {
  const TimeSummary times = summarise_times(pass.seconds);
  const std::string wrong = pass.wrong ? fmt::format("{:g}", *pass.wrong) : "N/A";
  return speed_cells(bytes, times.mean, style.world) + fmt::format("  {:>6}", wrong) +
         (style.per_iteration ? iteration_cells(times) : "");
}

std::string percent(double part, double all) {
  return all > 0.0 ? fmt::format("{:.3f}", 100.0 * part / all) : "N/A";
}

std::string own_cells(const AllreduceRow& row, const TableStyle& style) {
  const std::optional<double> wire = row.wire_bytes_per_element(style.world);
  std::string cells =
      fmt::format("  {:>8}  {:>7}  {:>7}  {:>8}", wire ? fmt::format("{:.3f}", *wire) : "N/A",
                  percent(row.traffic.trimmed, row.traffic.packets),
                  percent(row.traffic.missing, row.traffic.packets),
                  row.nmse ? format_error(*row.nmse) : "N/A");
  if (style.per_iteration) {
    cells += time_cell(summarise_times(row.out_of_place.seconds).p50) +
             time_cell(summarise_times(row.in_place.seconds).p50);
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

std::string table_row(const AllreduceRow& row, const AllreduceSettings& settings,
                      const TableStyle& style) {
  return fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:>6}", row.bytes, row.count,
                     collective::nccl_tests_name(settings.type), redop_name(settings.op), -1) +
         pass_cells(row.bytes, row.out_of_place, style) +
         pass_cells(row.bytes, row.in_place, style) + own_cells(row, style) + "\n";
}

std::string rival_line(const RivalRow& rival, const AllreduceRow& row, const TableStyle& style) {
  if (rival.times.seconds.empty()) {
    return fmt::format("# {}: not measured: {}\n", rival.name, rival.times.why_not);
  }
  const TimeSummary ours = summarise_times(row.in_place.seconds);
  const TimeSummary theirs = summarise_times(rival.times.seconds);
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
    const AllreduceRow& row = size.row;
    for (const AllreducePass* pass : {&row.out_of_place, &row.in_place}) {
      totals.wrong += pass->wrong.value_or(0.0);
      totals.average_bus_bandwidth +=
          allreduce_bandwidth(row.bytes, summarise_times(pass->seconds).mean, world).bus /
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

}  // namespace spillway::cli
