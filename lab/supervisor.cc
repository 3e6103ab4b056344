// SPDX-License-Identifier: Apache-2.0
#include "lab/supervisor.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/clock.h"
#include "lab/network/isolation.h"
#include "lab/network/lab_fabric.h"
#include "lab/network/links.h"
#include "lab/rank_environment.h"
#include "lab/rank_group.h"
#include "lab/time_account.h"
#include "lab/trace/lab_trace.h"
#include "sim/scenario/scenario.h"

namespace spillway::lab {
namespace {

void warn(const SupervisorTask& task, std::string_view sentence) {
  write_all(task.options.output.err, fmt::format("spillway: {}\n", sentence));
}

std::vector<fabric::PortAttachment> fabric_ports(const SupervisorTask& task) {
  std::vector<fabric::PortAttachment> ports;
  for (const HostEntry& host : task.plan.hosts) {
    fabric::PortAttachment& port = ports.emplace_back();
    if (task.isolation == Isolation::kNone) {
      port.listen = host.peer;
      port.deliver = host.listen;
    } else {
      port.interface = host.port_interface;
    }
  }
  return ports;
}

// The namespaces' descriptors stay open here: `lab exec` finds them by number.
base::Result<HostLinks> make_links(const SupervisorTask& task) {
  if (task.isolation == Isolation::kNone) {
    warn(task, kLoopbackNotice);
    return HostLinks();
  }
  make_mounts_private();
  base::Result<HostLinks> links = set_up_links(task.plan, task.options.tcp);
  if (links.ok() && !links->hosts_pace) {
    warn(task,
         "this kernel has no token bucket (sch_tbf): hosts are not paced, only the emulated links "
         "are");
  }
  return links;
}

bool is_traced(const SupervisorTask& task) {
  return !task.options.trace.path.empty();
}

// Fails, with the reason, if the kernel's switch cannot be used.
base::Status check_kernel_switch(const SupervisorTask& task) {
  return task.isolation == Isolation::kRoot
             ? kernel::check_scenario(task.options.scenario)
             : base::Status(
                   base::StatusCode::kUnavailable,
                   "a switch in the kernel needs root: run as root or give --dataplane user");
}

// Uses the kernel's switch if the user wants it, or if the user has no wish and it is possible.
base::Result<LabFabric> make_fabric(const SupervisorTask& task) {
  const std::vector<fabric::PortAttachment> ports = fabric_ports(task);
  const auto make = [&](Dataplane dataplane) {
    return LabFabric::make(dataplane, task.options.scenario, task.plan, ports, is_traced(task));
  };
  const Dataplane wanted = task.options.dataplane;
  const base::Status possible = check_kernel_switch(task);
  if (wanted == Dataplane::kBpf) {
    return possible.ok() ? make(Dataplane::kBpf) : possible;
  }
  if (wanted == Dataplane::kAuto && possible.ok()) {
    base::Result<LabFabric> fabric = make(Dataplane::kBpf);
    if (fabric.ok()) {
      return fabric;
    }
    warn(task, fmt::format("the fabric runs in user space: {}", fabric.status().message()));
  } else if (wanted == Dataplane::kAuto && !task.options.scenario.aggregations.empty()) {
    warn(task, fmt::format("sums are added in user space: {}", possible.message()));
  }
  return make(Dataplane::kUser);
}

std::vector<std::string> variables_of(const SupervisorTask& task, std::size_t rank) {
  EnvironmentOptions options;
  options.ranks_per_host = task.options.ranks_per_host;
  options.master_port = task.options.master_port;
  options.lab_id = task.state.id();
  options.own_interface = task.isolation != Isolation::kNone;
  options.additional = task.options.environment;
  return rank_variables(task.plan, rank, options);
}

// With the variables of the host's first rank.
HostRecord host_record(const SupervisorTask& task, const HostLinks& links, std::size_t index) {
  HostRecord host;
  host.name = task.plan.hosts[index].name;
  host.address = task.plan.hosts[index].ipv4;
  host.variables = variables_of(task, index * task.options.ranks_per_host);
  if (index < links.host_namespaces.size()) {
    host.namespace_fd = links.host_namespaces[index].get();
  }
  return host;
}

base::Status start_commands(const SupervisorTask& task, const std::vector<HostRecord>& hosts,
                            const RankBoards& boards, RankGroup& group) {
  for (std::size_t rank = 0; rank < task.commands.size(); ++rank) {
    const HostRecord& host = hosts[rank / task.options.ranks_per_host];
    RankLaunch launch;
    launch.host = host.name;
    launch.argv = task.commands[rank].argv;
    launch.environment = with_variables(current_environment(), variables_of(task, rank));
    launch.environment = with_variables(launch.environment, boards.variables(rank));
    launch.environment = with_variables(launch.environment, task.commands[rank].environment);
    launch.network_namespace = host.namespace_fd;
    if (base::Status status = group.start(launch); !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Result<std::vector<HostRecord>> record_hosts(const SupervisorTask& task,
                                                   const HostLinks& links) {
  std::vector<HostRecord> hosts;
  for (std::size_t index = 0; index < task.plan.hosts.size(); ++index) {
    hosts.push_back(host_record(task, links, index));
    if (base::Status status = task.state.write(index, hosts.back()); !status.ok()) {
      return status;
    }
  }
  return hosts;
}

base::Result<std::optional<LabTrace>> start_trace(const SupervisorTask& task,
                                                  const HostLinks& links, const LabFabric& fabric) {
  if (!is_traced(task)) {
    return std::optional<LabTrace>();
  }
  base::Result<LabTrace> trace =
      LabTrace::start(task.options.trace, task.plan, links.host_namespaces, fabric.kernel_switch());
  if (!trace.ok()) {
    return trace.status();
  }
  return std::optional<LabTrace>(std::move(trace).value());
}

// Call while the fabric still carries what is queued.
base::Status finish_trace(std::optional<LabTrace>& trace, LabOutcome& outcome) {
  if (!trace) {
    return {};
  }
  const base::Result<TraceSummary> summary = trace->finish();
  if (!summary.ok()) {
    return summary.status();
  }
  outcome.trace = *summary;
  return {};
}

// Runs until the last command has ended. Sends samples of the fabric meanwhile, if wanted.
LabOutcome run_commands(const SupervisorTask& task, const scenario::Topology& topology,
                        const LabFabric& fabric, const RankBoards& boards, RankGroup& group) {
  const base::MonotonicClock clock;
  const base::Instant begin = clock.now();
  std::optional<LabWatch> watch;
  if (!task.stays) {
    watch.emplace(topology, boards, [&fabric] { return fabric.snapshot(); });
  }
  std::optional<FabricSampler> sampler;
  if (task.options.on_sample) {
    sampler.emplace(
        [&fabric] { return fabric.snapshot(); },
        [fd = task.report_fd](const FabricSample& sample) { write_all(fd, sample_line(sample)); });
  }
  const GroupOutcome ended = group.run(fabric.stop_fd(), task.stays);
  LabOutcome outcome;
  outcome.exit_codes = ended.exit_codes;
  outcome.interrupted_by = ended.interrupted_by;
  outcome.first_failed = ended.first_failed;
  outcome.over_limit = ended.over_limit;
  outcome.elapsed = clock.now() - begin;
  outcome.time = watch ? watch->finish() : TimeReport();
  outcome.cpu = ended.cpu;
  outcome.dataplane = fabric.dataplane();
  return outcome;
}

base::Status run_to_the_end(const SupervisorTask& task) {
  const base::Result<scenario::Topology> topology = scenario::build_topology(task.options.scenario);
  if (!topology.ok()) {
    return topology.status();
  }
  const base::Result<HostLinks> links = make_links(task);
  if (!links.ok()) {
    return links.status();
  }
  const base::Result<std::vector<HostRecord>> hosts = record_hosts(task, *links);
  if (!hosts.ok()) {
    return hosts.status();
  }
  base::Result<LabFabric> made = make_fabric(task);
  if (!made.ok()) {
    return made.status();
  }
  LabFabric fabric = std::move(made).value();
  base::Result<std::optional<LabTrace>> trace = start_trace(task, *links, fabric);
  if (!trace.ok()) {
    return trace.status();
  }
  RankGroup group(task.options.output, task.options.grace, task.options.limit);
  const RankBoards boards(task.state.path(), task.commands.size());
  if (base::Status status = start_commands(task, *hosts, boards, group); !status.ok()) {
    return status;
  }
  write_all(task.report_fd, kReadyLine);
  const ProcessorTimes before = read_processor_times();
  LabOutcome outcome = run_commands(task, *topology, fabric, boards, group);
  const double stolen = stolen_share(before, read_processor_times());
  const base::Status trace_status = finish_trace(trace.value(), outcome);
  const base::Status fabric_status = fabric.finish();
  outcome.fabric = fabric.snapshot();
  outcome.pace = pace_of(*topology, outcome.fabric, stolen);
  write_all(task.report_fd, outcome_lines(outcome));
  return fabric_status.ok() ? trace_status : fabric_status;
}

}  // namespace

void supervise(const SupervisorTask& task) {
  const base::Status status = run_to_the_end(task);
  if (!status.ok()) {
    write_all(task.report_fd, error_line(status));
  }
  if (task.stays) {
    task.state.remove();
  }
}

}  // namespace spillway::lab
