// SPDX-License-Identifier: Apache-2.0
//
// `spillway bench switch`: the cost per frame of the switch's programs in the kernel, and their
// speed of adding. Compares their forwarding speed with a Linux bridge and the switch in user
// space.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/version.h"
#include "switch/kernel/measure/program_costs.h"
#include "tools/bench/forwarding/rig.h"
#include "tools/bench/forwarding/speed.h"
#include "tools/bench/progress.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"

namespace spillway::cli {
namespace {

struct BenchSwitchOptions {
  std::string part = "all";
  kernel::CostOptions costs;
  bench::ForwardingOptions forwarding;
  unsigned rounds = 5;
  unsigned cpu = 0;
  bool json = false;
};

bool wants(const BenchSwitchOptions& options, std::string_view part) {
  return options.part == "all" || options.part == part;
}

// ------------------------------------------------------------------ programs

std::vector<kernel::ProgramCost> measure_programs(const BenchSwitchOptions& options) {
  const bench::PinnedThread pinned(options.cpu);
  bench::Progress progress(kernel::cost_steps(options.costs) +
                           kernel::sum_cost_steps(options.costs));
  const auto step = [&progress](std::string_view what) {
    progress.step(what);
    bench::rest();
  };
  std::vector<kernel::ProgramCost> costs =
      value_or_throw(kernel::measure_program_costs(options.costs, step));
  const std::vector<kernel::ProgramCost> sums =
      value_or_throw(kernel::measure_sum_costs(options.costs, step));
  costs.insert(costs.end(), sums.begin(), sums.end());
  return costs;
}

nlohmann::json programs_json(const std::vector<kernel::ProgramCost>& costs) {
  nlohmann::json rows = nlohmann::json::array();
  for (const kernel::ProgramCost& cost : costs) {
    rows.push_back(
        {{"hook", cost.hook},
         {"fate", cost.fate},
         {"ip", cost.is_ipv6 ? 6 : 4},
         {"single_run_ns", cost.single_ns},
         {"repeated_ns", cost.repeated_ns ? nlohmann::json(*cost.repeated_ns) : nlohmann::json()},
         {"ns", cost.ns}});
  }
  return rows;
}

std::size_t column_of(const kernel::ProgramCost& cost) {
  if (cost.hook == "user space") {
    return 5;
  }
  return (cost.hook == "XDP" ? 1U : 3U) + (cost.is_ipv6 ? 1U : 0U);
}

// One row per fate; hooks and IP versions are columns.
void print_programs(const std::vector<kernel::ProgramCost>& costs, std::uint32_t frame_bytes) {
  TextTable table({fmt::format("ns per {}-byte frame", frame_bytes), "XDP, IPv4", "XDP, IPv6",
                   "tc, IPv4", "tc, IPv6", "user space"});
  std::vector<std::string> fates;
  for (const kernel::ProgramCost& cost : costs) {
    if (std::ranges::find(fates, cost.fate) == fates.end()) {
      fates.push_back(cost.fate);
    }
  }
  for (const std::string& fate : fates) {
    std::vector<std::string> cells = {fate, "-", "-", "-", "-", "-"};
    for (const kernel::ProgramCost& cost : costs) {
      if (cost.fate == fate) {
        cells[column_of(cost)] = fmt::format("{:.0f}", cost.ns);
      }
    }
    table.add_row(std::move(cells));
  }
  fmt::print("{}", table.to_string());
}

// ------------------------------------------------------------------ forwarding

nlohmann::json forwarding_json(const std::vector<bench::ForwardingSpeed>& speeds) {
  nlohmann::json rows = nlohmann::json::array();
  for (const bench::ForwardingSpeed& speed : speeds) {
    rows.push_back({{"forwarder", speed.forwarder},
                    {"frame_bytes", speed.frame_bytes},
                    {"packets_per_s", speed.packets_per_second()},
                    {"ns_per_packet", speed.ns},
                    {"of_bridge", speed.of_bridge},
                    {"arrived_share", speed.arrived_share}});
  }
  return rows;
}

void print_forwarding(const std::vector<bench::ForwardingSpeed>& speeds) {
  TextTable table({"one core", "frame bytes", "Mpps", "ns/frame", "x bridge", "arrived"});
  for (const bench::ForwardingSpeed& speed : speeds) {
    table.add_row({speed.forwarder, fmt::format("{}", speed.frame_bytes),
                   fmt::format("{:.2f}", speed.packets_per_second() / 1e6),
                   fmt::format("{:.0f}", speed.ns), fmt::format("{:.2f}", speed.of_bridge),
                   fmt::format("{:.1f} %", 100.0 * speed.arrived_share)});
  }
  fmt::print("{}", table.to_string());
}

// ------------------------------------------------------------------ sums

nlohmann::json sum_speeds_json(const std::vector<bench::SumForwarding>& speeds) {
  nlohmann::json rows = nlohmann::json::array();
  for (const bench::SumForwarding& speed : speeds) {
    rows.push_back({{"forwarder", speed.forwarder},
                    {"adds", speed.adds},
                    {"packets_per_s", speed.packets_per_second()},
                    {"ns_per_packet", speed.ns},
                    {"taken_share", speed.taken_share}});
  }
  return rows;
}

void print_sum_speeds(const std::vector<bench::SumForwarding>& speeds) {
  TextTable table({"one core, over a veth", "Mpps", "ns/packet", "taken"});
  for (const bench::SumForwarding& speed : speeds) {
    table.add_row({speed.forwarder, fmt::format("{:.2f}", speed.packets_per_second() / 1e6),
                   fmt::format("{:.0f}", speed.ns),
                   fmt::format("{:.1f} %", 100.0 * speed.taken_share)});
  }
  fmt::print("{}", table.to_string());
}

// ------------------------------------------------------------------ flood

nlohmann::json flood_json(const bench::FloodOutcome& flood) {
  return {{"link_mbit_per_s", flood.link_mbit},
          {"garbage_of_link", flood.garbage_of_link},
          {"spillway_of_link", flood.spillway_of_link},
          {"spillway_arrived_share", flood.spillway_arrived_share},
          {"spillway_whole_share", flood.spillway_whole_share},
          {"admitted_of_link", flood.admitted_of_link},
          {"arrived_of_sent", flood.arrived_of_sent}};
}

void print_flood(const bench::FloodOutcome& flood) {
  fmt::print(
      "flood: a port of {:.0f} Mbit/s, garbage at {:.1f} times that, Spillway at {:.2f} of it:\n"
      "  {:.2f} % of Spillway's packets went on, {:.2f} % whole; the port let in {:.3f} of its "
      "rate, and {:.2f} % of that arrived\n",
      flood.link_mbit, flood.garbage_of_link, flood.spillway_of_link,
      100.0 * flood.spillway_arrived_share, 100.0 * flood.spillway_whole_share,
      flood.admitted_of_link, 100.0 * flood.arrived_of_sent);
}

void run(BenchSwitchOptions options) {
  options.costs.rounds = options.forwarding.rounds = options.rounds;
  options.forwarding.cpu = options.cpu;
  nlohmann::json out = {{"version", base::kVersion}, {"rounds", options.rounds}};
  if (wants(options, "programs")) {
    const std::vector<kernel::ProgramCost> costs = measure_programs(options);
    out["frame_bytes"] = options.costs.frame_bytes;
    out["programs"] = programs_json(costs);
    if (!options.json) {
      print_programs(costs, options.costs.frame_bytes);
    }
  }
  if (wants(options, "forwarding")) {
    const std::vector<bench::ForwardingSpeed> speeds =
        bench::measure_forwarding(options.forwarding);
    out["forwarding"] = forwarding_json(speeds);
    if (!options.json) {
      print_forwarding(speeds);
    }
  }
  if (wants(options, "sums")) {
    const std::vector<bench::SumForwarding> speeds =
        bench::measure_sum_forwarding(options.forwarding);
    out["sums"] = sum_speeds_json(speeds);
    if (!options.json) {
      print_sum_speeds(speeds);
    }
  }
  if (wants(options, "flood")) {
    const bench::FloodOutcome flood = bench::measure_flood(options.forwarding.cpu);
    out["flood"] = flood_json(flood);
    if (!options.json) {
      print_flood(flood);
    }
  }
  if (options.json) {
    fmt::print("{}\n", out.dump(2));
  }
}

}  // namespace

void add_bench_switch(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand(
      "switch", "The switch in the kernel: ns per frame, and frames a second on one core");
  const auto options = std::make_shared<BenchSwitchOptions>();
  verb->add_option("--part", options->part, "programs, forwarding, sums, flood or all")
      ->check(CLI::IsMember({"all", "programs", "forwarding", "sums", "flood"}))
      ->capture_default_str();
  verb->add_option("--rounds", options->rounds, "Measurements of each, interleaved; medians count")
      ->check(whole_number(1, 100))
      ->capture_default_str();
  verb->add_option("--single-runs", options->costs.single_runs,
                   "Programs: runs on a fresh frame each, per round")
      ->check(whole_number(4, kernel::kMaxSingleRuns))
      ->capture_default_str();
  verb->add_option("--repeats", options->costs.repeats,
                   "Programs: runs on one frame, where it stays as it is, per round")
      ->check(whole_number(1, 100'000'000))
      ->capture_default_str();
  verb->add_option("--frames", options->forwarding.frames, "Forwarding and sums: frames per round")
      ->check(whole_number(64, 100'000'000))
      ->capture_default_str();
  verb->add_option("--cpu", options->cpu, "The processor to measure on")
      ->check(whole_number(0, 1023))
      ->capture_default_str();
  verb->add_flag("--json", options->json, "Print JSON");
  verb->footer(
      "Needs the rights to load programs and to make network namespaces (root).\n"
      "Examples:\n"
      "  sudo spillway bench switch --json\n"
      "  sudo spillway bench switch --part programs --rounds 3");
  verb->callback([options] { run(*options); });
}

}  // namespace spillway::cli
