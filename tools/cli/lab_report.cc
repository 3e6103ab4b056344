// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/lab_command.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "switch/dataplane/port_config.h"
#include "tools/cli/fabric_report.h"
#include "tools/cli/output.h"

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

// ------------------------------------------------------------------ where the time went

namespace {

constexpr std::size_t kShownBins = 20;

double megabytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) * 1e-6;
}

double in_ms(base::Duration duration) {
  return static_cast<double>(duration.count()) * 1e-6;
}

double percent_of(double part, double whole) {
  return whole > 0.0 ? 100.0 * part / whole : 0.0;
}

// Percentages, each averaged over several bins so that they fit a line.
std::string use_over_time(const lab::TimeReport& time) {
  const std::size_t together = (time.use_over_time.size() + kShownBins - 1) / kShownBins;
  std::string text = fmt::format("  use over time, every {:.0f} ms, in %:",
                                 in_ms(time.bin) * static_cast<double>(together));
  for (std::size_t i = 0; i < time.use_over_time.size(); i += together) {
    const auto begin = time.use_over_time.begin() + static_cast<std::ptrdiff_t>(i);
    const std::size_t count = std::min(together, time.use_over_time.size() - i);
    const double sum = std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(count), 0.0);
    text += fmt::format(" {:.0f}", 100.0 * sum / static_cast<double>(count));
  }
  return text + "\n";
}

// The largest part first; zero parts are left out.
std::string waits_text(const lab::TimeReport& time) {
  std::array<std::size_t, lab::kTimeParts> parts;
  std::iota(parts.begin(), parts.end(), std::size_t{0});
  std::ranges::stable_sort(parts, std::greater(),
                           [&](std::size_t part) { return time.idle_by_part[part]; });
  std::string text;
  for (const std::size_t part : parts) {
    const double share = percent_of(static_cast<double>(time.idle_by_part[part].count()),
                                    static_cast<double>(time.idle.count()));
    if (share >= 0.5) {
      text +=
          fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", lab::time_part_name(part), share);
    }
  }
  return text;
}

std::string operations_text(const lab::TimeReport& time, const spillway_port_counters& switches) {
  std::string text = fmt::format(
      "  operations were under way for {:.0f} ms; the link was idle for {:.0f} ms of them ({:.0f} "
      "%), in {} gaps of {:.0f} ms together, the longest {:.0f} ms\n",
      in_ms(time.under_way), in_ms(time.idle), percent_of(in_ms(time.idle), in_ms(time.under_way)),
      time.gaps, in_ms(time.gaps_total), in_ms(time.longest_gap));
  if (const std::string waits = waits_text(time); !waits.empty()) {
    text += fmt::format("  ranks meanwhile: {}\n", waits);
  }
  const auto sent = static_cast<double>(time.sent_bytes);
  return text +
         fmt::format(
             "  of {:.1f} MB that ranks sent, {:.1f} MB were sent again ({:.2f} %) and {:.1f} "
             "MB arrived twice; {:.1f} MB were in packets that switches trimmed\n",
             megabytes(time.sent_bytes), megabytes(time.resent_bytes),
             percent_of(static_cast<double>(time.resent_bytes), sent), megabytes(time.wasted_bytes),
             megabytes(switches.bytes[SPILLWAY_REASON_TRIMMED]));
}

}  // namespace

std::string time_text(const lab::TimeReport& time, const spillway_port_counters& switches) {
  if (time.link.empty()) {
    return {};
  }
  const std::string text =
      fmt::format("busiest link: {}, used for {:.0f} % of {:.0f} ms at {:g} Mbit/s\n", time.link,
                  100.0 * time.use, in_ms(time.elapsed),
                  static_cast<double>(time.rate.count()) * 1e-6) +
      use_over_time(time);
  return time.knows_operations ? text + operations_text(time, switches) : text;
}

nlohmann::json time_json(const lab::TimeReport& time) {
  nlohmann::json json = {
      {"busiest_link", time.link},         {"rate_bps", time.rate.count()},
      {"elapsed_ms", in_ms(time.elapsed)}, {"use", time.use},
      {"bin_ms", in_ms(time.bin)},         {"use_over_time", time.use_over_time}};
  if (!time.knows_operations) {
    return json;
  }
  nlohmann::json waits;
  for (std::size_t part = 0; part < lab::kTimeParts; ++part) {
    waits[std::string(lab::time_part_name(part))] = in_ms(time.idle_by_part[part]);
  }
  json["operations_ms"] = in_ms(time.under_way);
  json["idle_ms"] = in_ms(time.idle);
  json["idle_ms_by_wait"] = waits;
  json["gaps"] = time.gaps;
  json["gaps_ms"] = in_ms(time.gaps_total);
  json["longest_gap_ms"] = in_ms(time.longest_gap);
  json["sent_bytes"] = time.sent_bytes;
  json["resent_bytes"] = time.resent_bytes;
  json["wasted_bytes"] = time.wasted_bytes;
  return json;
}

nlohmann::json pace_json(const lab::Pace& pace) {
  return {{"kept_up", pace.kept_up()},          {"mean_late_us", pace.mean_late_us},
          {"p99_late_us", pace.p99_late_us},    {"limit_us", pace.limit_us},
          {"missed_frames", pace.missed},       {"stolen", pace.stolen},
          {"warning", lab::pace_sentence(pace)}};
}

namespace {

std::string tenants_text(const fabric::FabricSnapshot& fabric) {
  if (fabric.wanted_bytes == 0) {
    return {};
  }
  return fmt::format(
      "tenants: {:.1f} MB got through, {:.1f} % of what they would have without the ranks\n",
      megabytes(fabric.tenant_bytes),
      percent_of(static_cast<double>(fabric.tenant_bytes),
                 static_cast<double>(fabric.wanted_bytes)));
}

// The sums that switches formed, and where; empty if no switch adds.
std::string sums_text(const lab::LabOutcome& outcome) {
  const std::vector<sim::AdderTotals>& adders = outcome.fabric.adders;
  if (adders.empty()) {
    return {};
  }
  const std::string text =
      fmt::format("sums, added {}:",
                  outcome.dataplane == lab::Dataplane::kBpf ? "in the kernel" : "in user space");
  const bool came = std::ranges::any_of(
      adders, [](const sim::AdderTotals& adder) { return !adder.jobs.empty(); });
  return came ? fmt::format("{}\n{}", text, adders_table(adders).to_string())
              : text + " no sum packets came; ranks send them with SPILLWAY_ALGORITHM=switch\n";
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
  text += tenants_text(outcome.fabric);
  text += sums_text(outcome);
  return text + time_text(outcome.time, totals);
}

std::string lab_outcome_json(const lab::LabOutcome& outcome) {
  nlohmann::json fabric = fabric_json(outcome.fabric);
  fabric["packets"] = reasons_json(switch_totals(outcome.fabric));
  nlohmann::json all = {{"exit_codes", outcome.exit_codes},
                        {"exit_code", outcome.worst_exit_code()},
                        {"isolation", std::string(lab::isolation_name(outcome.isolation))},
                        {"dataplane", std::string(lab::dataplane_name(outcome.dataplane))},
                        {"fabric", fabric},
                        {"pace", pace_json(outcome.pace)},
                        {"time", time_json(outcome.time)}};
  if (outcome.trace) {
    all["trace"] = trace_json(*outcome.trace);
  }
  return all.dump(2);
}

}  // namespace spillway::cli
