// SPDX-License-Identifier: Apache-2.0
#include "cli/lab_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <numeric>

#include "cli/fabric_report.h"
#include "cli/text_table.h"
#include "dataplane/port_config.h"

namespace spillway::cli {
namespace {

std::uint64_t total_of(const lab::TraceSummary& trace) {
  return std::accumulate(trace.packets.begin(), trace.packets.end(), std::uint64_t{0});
}

std::string gaps_of(const lab::TraceSummary& trace) {
  std::string text;
  if (trace.left_out > 0) {
    text += fmt::format("{} packets more were not kept: --packets keeps more\n", trace.left_out);
  }
  if (trace.missed > 0) {
    text += fmt::format(
        "{} sights of packets are missing, as this machine was too busy: some ways have gaps\n",
        trace.missed);
  }
  return text;
}

}  // namespace

std::string trace_table(const lab::TraceSummary& trace, TimesOf times, std::string_view path) {
  TextTable table({"packets", "count", "share"});
  const std::uint64_t total = total_of(trace);
  for (std::size_t i = 0; i < lab::kPacketOutcomes; ++i) {
    if (trace.packets[i] > 0) {
      table.add_row({std::string(lab::outcome_name(static_cast<lab::PacketOutcome>(i))),
                     std::to_string(trace.packets[i]),
                     fmt::format("{:.1f} %", 100.0 * static_cast<double>(trace.packets[i]) /
                                                 static_cast<double>(total))});
    }
  }
  std::string text = total > 0 ? table.to_string() : "no Spillway packets were seen\n";
  if (times != TimesOf::kNothing && total > 0) {
    text += fmt::format("time in the {}: median {:.1f} us, p99 {:.1f} us\n",
                        times == TimesOf::kSwitch ? "switch" : "fabric",
                        base::microseconds_of(trace.median), base::microseconds_of(trace.p99));
  }
  if (times == TimesOf::kFabric) {
    text +=
        "the fabric ran in user space, where switches do not tell of single packets: the trace "
        "shows when they left and arrived\n";
  }
  return text + gaps_of(trace) + fmt::format("open {} in https://ui.perfetto.dev\n", path);
}

nlohmann::json trace_json(const lab::TraceSummary& trace) {
  nlohmann::json packets;
  for (std::size_t i = 0; i < lab::kPacketOutcomes; ++i) {
    packets[std::string(lab::outcome_name(static_cast<lab::PacketOutcome>(i)))] = trace.packets[i];
  }
  return {{"packets", packets},
          {"left_out", trace.left_out},
          {"missed", trace.missed},
          {"median_us", base::microseconds_of(trace.median)},
          {"p99_us", base::microseconds_of(trace.p99)}};
}

namespace {

spillway_port_counters switch_totals(const fabric::FabricSnapshot& fabric) {
  spillway_port_counters totals = {};
  for (const fabric::PortSnapshot& port : fabric.ports) {
    dataplane::add_counters(port.counters, totals);
  }
  return totals;
}

}  // namespace

std::string lab_summary(const lab::LabOutcome& outcome) {
  const spillway_port_counters totals = switch_totals(outcome.fabric);
  const bool in_kernel = outcome.dataplane == lab::Dataplane::kBpf;
  std::string text =
      (in_kernel ? "fabric in the kernel: " : "fabric: ") + fabric_summary(outcome.fabric);
  std::string switches;
  for (unsigned i = SPILLWAY_REASON_MARKED; i < SPILLWAY_REASONS; ++i) {
    if (totals.packets[i] > 0) {
      switches += fmt::format(" {} {},", totals.packets[i],
                              dataplane::reason_name(static_cast<spillway_reason>(i)));
    }
  }
  if (outcome.fabric.lost_to_faults > 0) {
    switches += fmt::format(" {} lost to faults,", outcome.fabric.lost_to_faults);
  }
  if (!switches.empty()) {
    switches.back() = '\n';
    text += "switches:" + switches;
  }
  return text;
}

std::string lab_outcome_json(const lab::LabOutcome& outcome) {
  nlohmann::json fabric = fabric_json(outcome.fabric);
  fabric["packets"] = reasons_json(switch_totals(outcome.fabric));
  nlohmann::json all = {{"exit_codes", outcome.exit_codes},
                        {"exit_code", outcome.worst_exit_code()},
                        {"isolation", std::string(lab::isolation_name(outcome.isolation))},
                        {"dataplane", std::string(lab::dataplane_name(outcome.dataplane))},
                        {"fabric", fabric}};
  if (outcome.trace) {
    all["trace"] = trace_json(*outcome.trace);
  }
  return all.dump(2);
}

}  // namespace spillway::cli
