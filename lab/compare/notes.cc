// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/compare/comparison.h"
#include "switch/dataplane/port_config.h"

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

std::string name_of(const RunRecord& run) {
  return run.round == 1 ? run.transport.name
                        : fmt::format("{}, round {}", run.transport.name, run.round);
}

// "cubic, bbr for tcp-bbr".
std::string tcp_text(const std::vector<Transport>& transports) {
  std::string usual;
  std::string others;
  for (const Transport& transport : transports) {
    usual = usual.empty() ? transport.tcp : usual;
    if (transport.tcp != usual) {
      others += fmt::format(", {} for {}", transport.tcp, transport.name);
    }
  }
  return usual + others;
}

void note_failure(const RunRecord& run, Notes& notes) {
  if (const std::string failure = failure_of(run); !failure.empty()) {
    notes.push_back(fmt::format("{}: {}", name_of(run), failure));
  }
}

// A comparison that was stopped has fewer rounds than requested.
void note_missing_rounds(const Comparison& comparison, Notes& notes) {
  for (const RunRecord& run : comparison.runs) {
    if (const std::size_t made = rounds_of(run).size(); made < comparison.rounds) {
      notes.push_back(fmt::format("{}: {} of {} rounds were made", run.transport.name, made,
                                  comparison.rounds));
    }
  }
  if (!comparison.left_out.empty()) {
    notes.push_back(fmt::format("not run: {}", fmt::join(comparison.left_out, ", ")));
  }
}

void note_log(const RunRecord& run, Notes& notes) {
  const ProgressLog& log = run.log;
  if (log.bad_lines > 0) {
    notes.push_back(fmt::format("{}: lines of {} that were not understood and are left out: {}",
                                name_of(run), run.log_path, count_text(log.bad_lines)));
  }
  if (log.left_out > 0) {
    notes.push_back(fmt::format("{}: {} steps and evaluations beyond the first {} are left out",
                                name_of(run), count_text(log.left_out), count_text(kMaxPoints)));
  }
}

// Notes a run that did not use the hook in its name.
void note_hook(const RunRecord& run, Notes& notes) {
  const Transport& transport = run.transport;
  if (transport.hook.empty() || run.watched.hook == HookUse::kUsed || !went_well(run)) {
    return;
  }
  const char* why = run.watched.hook == HookUse::kNoModel
                        ? "the lab saw no DistributedDataParallel to put its hook around"
                        : "the script's model has a hook of its own, which stays";
  notes.push_back(fmt::format("{}: {}, so torch's {} hook was not used: this run is as tcp",
                              name_of(run), why, transport.hook));
}

// One note for all runs: steps that cannot be seen over one transport are seen over none.
void note_missing_steps(const std::vector<RunRecord>& runs, Notes& notes) {
  std::vector<std::string> names;
  for (const RunRecord& run : runs) {
    if (step_source(run) == StepSource::kNone && went_well(run)) {
      names.push_back(run.transport.name);
    }
  }
  if (!names.empty()) {
    notes.push_back(fmt::format(
        "{}: the lab saw no steps of a torch.optim optimizer, so there are no step times; for "
        "other programs, let rank 0 write a line per step, such as {{\"event\": \"step\", "
        "\"step\": 7, \"seconds\": 1.25, \"step_ms\": 80.5}}, to the file that {{log}} in the "
        "command becomes",
        fmt::join(names, ", ")));
  }
}

void note_same_runs(const Comparison& comparison, Notes& notes) {
  const bool is_seen = std::any_of(comparison.runs.begin(), comparison.runs.end(),
                                   [](const RunRecord& run) { return run.watched.has_group; });
  const bool is_told = std::any_of(comparison.runs.begin(), comparison.runs.end(), went_well);
  if (comparison.runs.size() > 1 && is_told && !is_seen &&
      !depends_on_transport(comparison.command)) {
    notes.emplace_back(
        "the command has no {backend} or {transport}, and the lab saw no process group of torch: "
        "only variables such as SPILLWAY_CODEC tell its runs apart");
  }
}

void note_unwatched(const Comparison& comparison, Notes& notes) {
  if (!comparison.runs.empty() && !comparison.runs.front().is_watched) {
    notes.emplace_back(
        "scripts are not watched, and get neither backend nor hook, because Spillway's Python "
        "package (python3-spillway) is not installed beside this tool");
  }
}

void note_emulation(const RunRecord& run, Notes& notes) {
  const std::string sentence = run.late.empty() ? lab::pace_sentence(run.outcome.pace) : "";
  if (!sentence.empty()) {
    notes.push_back(fmt::format("{}: {}", name_of(run), sentence));
  }
}

}  // namespace

std::vector<Fact> network_facts(const lab::LabOptions& options,
                                const std::vector<Transport>& transports) {
  const scenario::Scenario& scenario = options.scenario;
  const auto mode = static_cast<spillway_port_mode>(scenario.port.mode);
  const std::string time = slowdown_sentence(options.slowdown);
  std::vector<Fact> facts = {
      {"hosts", shape_text(scenario.topology)},
      {"links", fmt::format("{}, {} each way, MTU {}", rate_text(scenario.topology.rate),
                            duration_text(scenario.topology.delay), options.mtu)},
      {"switches", fmt::format("{}, {:g} KiB per queue", dataplane::port_mode_name(mode),
                               scenario.port.queue_bytes / 1024.0)},
      {"background traffic", tenants_text(scenario.tenants)},
      {"faults", scenario.faults.empty() ? "none" : std::to_string(scenario.faults.size())},
      {"TCP", tcp_text(transports)},
      {"seed", std::to_string(scenario.seed)}};
  if (!time.empty()) {
    facts.push_back({"time", time});
  }
  return facts;
}

std::string slowdown_sentence(const lab::Slowdown& slowdown) {
  if (slowdown.total() == 1) {
    return {};
  }
  const std::string why =
      slowdown.machine == 1
          ? "by the preset"
          : fmt::format("{:g} by the preset, times {:g} because this machine was late",
                        slowdown.preset, slowdown.machine);
  return fmt::format(
      "Time on this network runs {:g} times slower than on the real one ({}); computing is not "
      "slowed, so gains in step times are larger here than there.",
      slowdown.total(), why);
}

std::vector<std::string> notes_of(const Comparison& comparison) {
  Notes notes;
  for (const RunRecord& run : comparison.runs) {
    for (const RunRecord* round : rounds_of(run)) {
      note_failure(*round, notes);
      note_log(*round, notes);
      note_hook(*round, notes);
      note_emulation(*round, notes);
    }
  }
  note_missing_rounds(comparison, notes);
  note_missing_steps(comparison.runs, notes);
  note_same_runs(comparison, notes);
  note_unwatched(comparison, notes);
  const RunRecord* made = first_made(comparison);
  if (made != nullptr && made->outcome.isolation == lab::Isolation::kNone) {
    notes.emplace_back(lab::kLoopbackNotice);
    notes.emplace_back("TCP is this machine's own, whatever a table calls it");
  }
  return notes;
}

}  // namespace spillway::compare
