// SPDX-License-Identifier: Apache-2.0
//
// `spillway bench transport`: the transport on real sockets between two processes, beside raw UDP
// and TCP in the same run; or, with --core, its state machines alone.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/version.h"
#include "tools/bench/loopback/wire_speed.h"
#include "tools/bench/progress.h"
#include "tools/bench/transport_speed.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

struct BenchTransportOptions {
  std::vector<unsigned> sizes{1452, 8952};
  double seconds = 3.0;
  unsigned paths = 1;
  unsigned rounds = 1;
  std::string garbage;
  bool core = false;
  bool quick = false;
  bool json = false;
};

// ------------------------------------------------------------------ real sockets

// The default, and encryption.
constexpr std::array<std::pair<const char*, wire::Protection>, 2> kProtections = {
    {{"tags", wire::Protection::kTags}, {"encrypted", wire::Protection::kEncryption}}};

// Results for one datagram size, each from the median round.
struct BenchTransportRow {
  unsigned datagram_bytes = 0;
  bench::WireSpeed raw{};
  std::array<bench::WireSpeed, kProtections.size()> spillway{};

  const bench::WireSpeed& shipped() const { return spillway[0]; }
};

struct BenchTransportResults {
  std::vector<BenchTransportRow> rows;
  bench::WireSpeed tcp;
  std::optional<double> iperf3;
  net::Offloads offloads;
};

bench::WireSpeed median_of(std::vector<bench::WireSpeed> speeds) {
  std::ranges::sort(speeds, {}, &bench::WireSpeed::gigabits_per_second);
  return speeds[speeds.size() / 2];
}

// Rounds are interleaved, so that a slowdown of the machine affects all alike.
BenchTransportRow measure_row(unsigned size, unsigned rounds, bench::WireSpeedOptions measured,
                              bench::Progress& progress) {
  std::vector<bench::WireSpeed> raw;
  std::array<std::vector<bench::WireSpeed>, kProtections.size()> spillway;
  measured.datagram_bytes = size;
  for (unsigned round = 0; round < rounds; ++round) {
    progress.step(fmt::format("raw UDP, {} bytes", size));
    raw.push_back(bench::measure_raw_udp(measured));
    for (std::size_t i = 0; i < kProtections.size(); ++i) {
      progress.step(fmt::format("Spillway, {} bytes, {}", size, kProtections[i].first));
      measured.protection = kProtections[i].second;
      spillway[i].push_back(bench::measure_spillway(measured));
    }
  }
  BenchTransportRow row{.datagram_bytes = size, .raw = median_of(std::move(raw))};
  std::ranges::transform(spillway, row.spillway.begin(), median_of);
  return row;
}

BenchTransportResults measure(const BenchTransportOptions& options) {
  BenchTransportResults results;
  results.offloads = net::available_offloads({});
  bench::WireSpeedOptions measured{
      .seconds = options.seconds, .offloads = results.offloads, .paths = options.paths};
  if (!options.garbage.empty()) {
    measured.garbage = parsed("--garbage", base::parse_rate(options.garbage));
  }
  bench::Progress progress((1 + kProtections.size()) * options.sizes.size() * options.rounds + 2);
  for (const unsigned size : options.sizes) {
    results.rows.push_back(measure_row(size, options.rounds, measured, progress));
  }
  progress.step("TCP");
  results.tcp = bench::measure_tcp(measured);
  progress.step("iperf3");
  results.iperf3 = bench::iperf3_gigabits_per_second(options.seconds);
  return results;
}

nlohmann::json speed_json(const bench::WireSpeed& speed) {
  nlohmann::json out = {{"gbit_per_s", speed.gigabits_per_second},
                        {"cpu_ns_per_byte", speed.cpu_nanoseconds_per_byte},
                        {"refused", speed.refused},
                        {"lost_share", speed.lost_share}};
  out["cycles_per_byte"] =
      speed.cycles_per_byte > 0.0 ? nlohmann::json(speed.cycles_per_byte) : nlohmann::json();
  return out;
}

void print_json(const BenchTransportOptions& options, const BenchTransportResults& results) {
  nlohmann::json out = {{"version", base::kVersion},      {"paths", options.paths},
                        {"rounds", options.rounds},       {"gso", results.offloads.gso},
                        {"gro", results.offloads.gro},    {"batching", results.offloads.batching},
                        {"tcp", speed_json(results.tcp)}, {"rows", nlohmann::json::array()}};
  out["iperf3_gbit_per_s"] = results.iperf3 ? nlohmann::json(*results.iperf3) : nlohmann::json();
  for (const BenchTransportRow& row : results.rows) {
    const double shipped = row.shipped().gigabits_per_second;
    nlohmann::json entry = {{"datagram_bytes", row.datagram_bytes},
                            {"raw_udp", speed_json(row.raw)},
                            {"spillway", speed_json(row.shipped())},
                            {"of_raw", shipped / row.raw.gigabits_per_second},
                            {"of_tcp", shipped / results.tcp.gigabits_per_second}};
    for (std::size_t i = 0; i < kProtections.size(); ++i) {
      nlohmann::json checked = speed_json(row.spillway[i]);
      checked["of_tags"] = row.spillway[i].gigabits_per_second / shipped;
      entry["checks"][kProtections[i].first] = checked;
    }
    out["rows"].push_back(entry);
  }
  fmt::print("{}\n", out.dump(2));
}

std::string ratio(const bench::WireSpeed& speed, const bench::WireSpeed* to) {
  return to == nullptr ? ""
                       : fmt::format("{:.2f}", speed.gigabits_per_second / to->gigabits_per_second);
}

std::vector<std::string> cells(const std::string& what, const bench::WireSpeed& speed,
                               const bench::WireSpeed* raw = nullptr) {
  return {what, fmt::format("{:.1f}", speed.gigabits_per_second), ratio(speed, raw),
          fmt::format("{:.2f}", speed.cpu_nanoseconds_per_byte),
          speed.cycles_per_byte > 0.0 ? fmt::format("{:.2f}", speed.cycles_per_byte) : "-"};
}

void print_table(const BenchTransportResults& results) {
  TextTable table({"loopback, a core each side", "Gbit/s", "of raw", "CPU ns/byte", "cycles/byte"});
  for (const BenchTransportRow& row : results.rows) {
    table.add_row(cells(fmt::format("raw UDP, {} B", row.datagram_bytes), row.raw));
    for (std::size_t i = 0; i < kProtections.size(); ++i) {
      table.add_row(
          cells(fmt::format("Spillway, {} B, {}", row.datagram_bytes, kProtections[i].first),
                row.spillway[i], &row.raw));
    }
  }
  table.add_row(cells("TCP", results.tcp));
  if (results.iperf3) {
    table.add_row({"TCP, says iperf3", fmt::format("{:.1f}", *results.iperf3), "", "", ""});
  }
  fmt::print("{}", table.to_string());
  for (const BenchTransportRow& row : results.rows) {
    if (row.shipped().refused > 0.0) {
      fmt::print("{} B: {:.0f} datagrams were refused\n", row.datagram_bytes,
                 row.shipped().refused);
    }
  }
  fmt::print("GSO {}, GRO {}, batching {}. CPU time and cycles are those of both sides.\n",
             results.offloads.gso ? "on" : "off", results.offloads.gro ? "on" : "off",
             results.offloads.batching ? "on" : "off");
}

void run_on_sockets(const BenchTransportOptions& options) {
  const BenchTransportResults results = measure(options);
  options.json ? print_json(options, results) : print_table(results);
}

// ------------------------------------------------------------------ the state machines alone

void print_json(const bench::TransportSpeedResults& results) {
  nlohmann::json out = {{"version", base::kVersion},
                        {"memcpy_gb_per_s", results.memcpy_gigabytes_per_second},
                        {"rows", nlohmann::json::array()}};
  for (const bench::TransportSpeed& row : results.rows) {
    out["rows"].push_back({{"what", row.what},
                           {"packets_per_s", row.packets_per_second},
                           {"control_per_data_packet", row.control_share}});
  }
  fmt::print("{}\n", out.dump(2));
}

void print_table(const bench::TransportSpeedResults& results) {
  TextTable table({"one core, no I/O", "million packets/s", "Gb/s of 1460 B", "control/data"});
  for (const bench::TransportSpeed& row : results.rows) {
    table.add_row({row.what, fmt::format("{:.2f}", row.packets_per_second * 1e-6),
                   fmt::format("{:.1f}", row.packets_per_second * 1460 * 8e-9),
                   fmt::format("{:.3f}", row.control_share)});
  }
  fmt::print("{}memcpy of the same packets: {:.1f} GB/s\n", table.to_string(),
             results.memcpy_gigabytes_per_second);
}

void run_core(const BenchTransportOptions& options) {
  bench::TransportSpeedOptions measured;
  if (options.quick) {
    measured = {.messages = 8, .repetitions = 1};
  }
  bench::Progress progress(bench::transport_speed_steps());
  const bench::TransportSpeedResults results = bench::measure_transport_speed(measured, progress);
  options.json ? print_json(results) : print_table(results);
}

}  // namespace

void add_bench_transport(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand(
      "transport", "Two processes on loopback: the transport beside raw UDP and TCP");
  const auto options = std::make_shared<BenchTransportOptions>();
  std::vector<CLI::Option*> of_sockets;
  of_sockets.push_back(
      verb->add_option("--sizes", options->sizes, "Bytes of UDP payload, one row each")
          ->check(whole_number(600, 8972))
          ->delimiter(',')
          ->capture_default_str());
  of_sockets.push_back(verb->add_option("--seconds", options->seconds, "Duration of each figure")
                           ->check(CLI::Range(0.1, 60.0))
                           ->capture_default_str());
  of_sockets.push_back(verb->add_option("--paths", options->paths, "Source ports to spray over")
                           ->check(whole_number(1, 64))
                           ->capture_default_str());
  of_sockets.push_back(verb->add_option(
      "--garbage", options->garbage,
      "Rate of garbage, forged and foreign datagrams at the receiver's port: 1gbit"));
  of_sockets.push_back(
      verb->add_option("--rounds", options->rounds, "Repetitions of everything; the median counts")
          ->check(whole_number(1, 99))
          ->capture_default_str());
  CLI::Option* core = verb->add_flag(
      "--core", options->core,
      "Measure packets per second through the state machines alone, on one core without I/O");
  for (CLI::Option* option : of_sockets) {
    core->excludes(option);
  }
  verb->add_flag("--quick", options->quick, "A small part of the work, for a first look")
      ->needs(core);
  verb->add_flag("--json", options->json, "Print JSON");
  verb->footer(
      "Examples:\n"
      "  spillway bench transport --json\n"
      "  spillway bench transport --rounds 5 --seconds 1\n"
      "  spillway bench transport --garbage 1gbit\n"
      "  spillway bench transport --core --json");
  verb->callback([options] { options->core ? run_core(*options) : run_on_sockets(*options); });
}

}  // namespace spillway::cli
