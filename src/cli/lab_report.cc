// SPDX-License-Identifier: Apache-2.0
#include "cli/lab_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/fabric_report.h"
#include "cli/trace_report.h"
#include "dataplane/port_config.h"

namespace spillway::cli {
namespace {

spillway_port_counters totals_of(const fabric::FabricSnapshot& fabric) {
  spillway_port_counters totals = {};
  for (const fabric::PortSnapshot& port : fabric.ports) {
    dataplane::add_counters(port.counters, totals);
  }
  return totals;
}

}  // namespace

std::string lab_summary(const lab::LabOutcome& outcome) {
  const spillway_port_counters totals = totals_of(outcome.fabric);
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
  fabric["packets"] = reasons_json(totals_of(outcome.fabric));
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
