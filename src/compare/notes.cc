// SPDX-License-Identifier: Apache-2.0
#include "compare/notes.h"

#include <fmt/format.h>

#include "compare/comparison.h"
#include "dataplane/port_config.h"

namespace spillway::compare {
namespace {

using Notes = std::vector<std::string>;

std::string rate_text(base::BitRate rate) {
  const auto bits = static_cast<double>(rate.count());
  return bits >= 1e9 ? fmt::format("{:g} Gbit/s", bits / 1e9)
                     : fmt::format("{:g} Mbit/s", bits / 1e6);
}

std::string duration_text(base::Duration duration) {
  const auto nanoseconds = static_cast<double>(duration.count());
  return nanoseconds >= 1e6 ? fmt::format("{:g} ms", nanoseconds / 1e6)
                            : fmt::format("{:g} us", nanoseconds / 1e3);
}

std::string shape_text(const scenario::TopologyOptions& topology) {
  switch (topology.kind) {
    case scenario::TopologyKind::kOneSwitch:
      return fmt::format("{} under one switch", topology.hosts);
    case scenario::TopologyKind::kLeafSpine:
      return fmt::format("{} under {} leaves and {} spines", topology.hosts, topology.leaves,
                         topology.spines);
    case scenario::TopologyKind::kFatTree:
      return fmt::format("a fat tree of {}-port switches", topology.k);
    case scenario::TopologyKind::kFile:
      break;
  }
  return topology.file;
}

std::string tenant_text(const scenario::Tenant& tenant) {
  const std::string rate = tenant.rate > base::BitRate()
                               ? rate_text(tenant.rate)
                               : fmt::format("{:g} % of the link", tenant.share * 100);
  const std::string pauses = tenant.off > base::Duration()
                                 ? fmt::format(" for {} of every {}", duration_text(tenant.on),
                                               duration_text(tenant.on + tenant.off))
                                 : "";
  return fmt::format("{} to {}: {}{}", tenant.from, tenant.to, rate, pauses);
}

std::string tenants_text(const std::vector<scenario::Tenant>& tenants) {
  std::string text;
  for (const scenario::Tenant& tenant : tenants) {
    text += (text.empty() ? "" : "; ") + tenant_text(tenant);
  }
  return text.empty() ? "none" : text;
}

void note_failures(const RunRecord& run, Notes& notes) {
  for (std::size_t rank = 0; rank < run.outcome.exit_codes.size(); ++rank) {
    if (run.outcome.exit_codes[rank] != 0) {
      notes.push_back(fmt::format("{}: rank {} ended with exit code {}; what it printed is in {}",
                                  run.transport.name, rank, run.outcome.exit_codes[rank],
                                  run.output_path));
      return;
    }
  }
}

void note_log(const RunRecord& run, Notes& notes) {
  const ProgressLog& log = run.log;
  const std::string& name = run.transport.name;
  if (log.bad_lines > 0) {
    notes.push_back(fmt::format("{}: lines of {} that were not understood and are left out: {}",
                                name, run.log_path, count_text(log.bad_lines)));
  }
  if (log.left_out > 0) {
    notes.push_back(fmt::format("{}: {} steps and evaluations beyond the first {} are left out",
                                name, count_text(log.left_out), count_text(kMaxPoints)));
  }
}

// One note for all: a command that writes no log writes none over any transport.
void note_missing_logs(const std::vector<RunRecord>& runs, Notes& notes) {
  std::vector<std::string> names;
  for (const RunRecord& run : runs) {
    if (run.log.is_empty()) {
      names.push_back(run.transport.name);
    }
  }
  if (!names.empty()) {
    notes.push_back(fmt::format(
        "{}: wrote no log, so there are no step times and no accuracy; for these, let rank 0 write "
        "a line per step, such as {{\"event\": \"step\", \"step\": 7, \"seconds\": 1.25, "
        "\"step_ms\": 80.5}}, to the file that {{log}} in the command becomes",
        fmt::join(names, ", ")));
  }
}

void note_emulation(const RunRecord& run, Notes& notes) {
  const fabric::FabricSnapshot& fabric = run.outcome.fabric;
  if (fabric.missed_in + fabric.missed_out > 0) {
    notes.push_back(
        fmt::format("{}: the emulation itself lost {} frames, because this machine is too slow for "
                    "the load: give --rate less",
                    run.transport.name, count_text(fabric.missed_in + fabric.missed_out)));
  }
}

}  // namespace

std::vector<Fact> network_facts(const lab::LabOptions& options) {
  const scenario::Scenario& scenario = options.scenario;
  const auto mode = static_cast<spillway_port_mode>(scenario.port.mode);
  return {{"hosts", shape_text(scenario.topology)},
          {"links", fmt::format("{}, {} each way, MTU {}", rate_text(scenario.topology.rate),
                                duration_text(scenario.topology.delay), options.mtu)},
          {"switches", fmt::format("{}, {:g} KiB per queue", dataplane::port_mode_name(mode),
                                   scenario.port.queue_bytes / 1024.0)},
          {"background traffic", tenants_text(scenario.tenants)},
          {"faults", scenario.faults.empty() ? "none" : std::to_string(scenario.faults.size())},
          {"TCP", options.tcp.empty() ? "the machine's own" : options.tcp},
          {"seed", std::to_string(scenario.seed)}};
}

std::vector<std::string> notes_of(const Comparison& comparison) {
  Notes notes;
  for (const RunRecord& run : comparison.runs) {
    note_failures(run, notes);
    note_log(run, notes);
    note_emulation(run, notes);
  }
  note_missing_logs(comparison.runs, notes);
  if (!comparison.runs.empty() &&
      comparison.runs.front().outcome.isolation == lab::Isolation::kNone) {
    notes.emplace_back(lab::kLoopbackNotice);
  }
  return notes;
}

}  // namespace spillway::compare
