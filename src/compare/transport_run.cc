// SPDX-License-Identifier: Apache-2.0
#include "compare/transport_run.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include "compare/progress_log.h"
#include "lab/launcher.h"
#include "net/system_call.h"

namespace spillway::compare {
namespace {

// The paths are absolute: ranks may change their folder.
RunRecord record_for(const RunTask& task, const Transport& transport) {
  const std::filesystem::path folder = std::filesystem::absolute(task.folder);
  RunRecord record;
  record.transport = transport;
  record.log_path = (folder / (transport.name + ".jsonl")).lexically_normal();
  record.output_path = (folder / (transport.name + ".txt")).lexically_normal();
  return record;
}

base::Result<net::UniqueFd> open_output(const std::string& path) {
  net::UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (!file.valid()) {
    return net::system_error(fmt::format("write {}", path), errno, "choose another folder");
  }
  return file;
}

base::Status remove_old(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error) {
    return net::system_error(fmt::format("replace {}", path), error.value());
  }
  return {};
}

base::Result<std::vector<lab::RankCommand>> commands_for(const RunTask& task,
                                                         const RunRecord& record) {
  const base::Result<lab::HostPlan> plan =
      lab::make_host_plan(task.options.scenario, {.mtu = task.options.mtu});
  if (!plan.ok()) {
    return plan.status();
  }
  const lab::RankCommand command = {command_for(task.command, record.transport, record.log_path),
                                    record.transport.variables};
  return std::vector<lab::RankCommand>(plan->hosts.size(), command);
}

}  // namespace

base::Result<RunRecord> run_transport(const RunTask& task, const Transport& transport) {
  RunRecord record = record_for(task, transport);
  if (base::Status status = remove_old(record.log_path); !status.ok()) {
    return status;
  }
  const base::Result<net::UniqueFd> output = open_output(record.output_path);
  if (!output.ok()) {
    return output.status();
  }
  const base::Result<std::vector<lab::RankCommand>> commands = commands_for(task, record);
  if (!commands.ok()) {
    return commands.status();
  }
  LogFollower follower(record.log_path);
  lab::LabOptions options = task.options;
  options.output.out = options.output.err = output->get();
  options.on_sample = [&](const lab::FabricSample& sample) {
    record.samples.push_back(sample);
    follower.look();
    task.on_progress({transport, sample, follower.log()});
  };
  base::Result<lab::LabOutcome> outcome = lab::run_lab(options, *commands);
  if (!outcome.ok()) {
    return outcome.status();
  }
  follower.finish();
  record.log = follower.log();
  record.outcome = std::move(outcome).value();
  record.samples.push_back(lab::sample_of(record.outcome.fabric, record.outcome.elapsed));
  return record;
}

}  // namespace spillway::compare
