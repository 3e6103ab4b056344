// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/transport_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/own_file.h"
#include "lab/compare/progress_log.h"
#include "lab/launcher.h"
#include "lab/rank_environment.h"
#include "net/system_call.h"

namespace spillway::compare {
namespace {

// Variables that let the lab watch a PyTorch script; empty if the package is not installed.
std::vector<std::string> watch_variables_for(const RunTask& task) {
  return lab::watch_variables(
      lab::path_of_this_tool(),
      lab::with_variables(lab::current_environment(), task.options.environment));
}

// Paths are absolute, because ranks may change their folder.
RunRecord record_for(const RunTask& task, const Transport& transport) {
  const std::filesystem::path folder = std::filesystem::absolute(task.folder);
  RunRecord record;
  record.transport = transport;
  record.round = task.round;
  record.slowdown = task.options.slowdown;
  record.is_watched = !watch_variables_for(task).empty();
  const std::string name =
      task.round == 1 ? transport.name : fmt::format("{}.{}", transport.name, task.round);
  record.log_path = (folder / (name + ".jsonl")).lexically_normal();
  record.watched_path = (folder / (name + ".steps.jsonl")).lexically_normal();
  record.output_path = (folder / (name + ".txt")).lexically_normal();
  return record;
}

base::Result<net::UniqueFd> open_output(const std::string& path) {
  net::UniqueFd file(base::open_own_file(path.c_str(), base::Opening::kAppend));
  if (!file.valid()) {
    return base::not_opened(path, errno, "choose another folder");
  }
  if (::ftruncate(file.get(), 0) != 0) {
    return net::system_error(fmt::format("empty {}", path), errno);
  }
  return file;
}

base::Status remove_old(const RunRecord& record) {
  for (const std::string& path : {record.log_path, record.watched_path}) {
    std::error_code error;
    std::filesystem::remove(path, error);
    if (error) {
      return net::system_error(fmt::format("replace {}", path), error.value());
    }
  }
  return {};
}

std::vector<std::string> variables_for(const RunTask& task, const RunRecord& record) {
  std::vector<std::string> variables = watch_variables_for(task);
  variables.push_back("SPILLWAY_LAB_STEPS=" + record.watched_path);
  const std::vector<std::string>& own = record.transport.variables;
  variables.insert(variables.end(), own.begin(), own.end());
  return variables;
}

base::Result<std::vector<lab::RankCommand>> commands_for(const RunTask& task,
                                                         const RunRecord& record) {
  const base::Result<lab::HostPlan> plan =
      lab::make_host_plan(task.options.scenario, {.mtu = task.options.mtu});
  if (!plan.ok()) {
    return plan.status();
  }
  const lab::RankCommand command = {command_for(task.command, record.transport, record.log_path),
                                    variables_for(task, record)};
  return std::vector<lab::RankCommand>(plan->hosts.size(), command);
}

base::Status run_command(const RunTask& task, RunRecord& record) {
  const Transport& transport = record.transport;
  if (base::Status status = remove_old(record); !status.ok()) {
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
  LogFollower watcher(record.watched_path);
  lab::LabOptions options = task.options;
  options.tcp = transport.tcp;
  options.output.out = options.output.err = output->get();
  options.on_sample = [&](const lab::FabricSample& sample) {
    record.samples.push_back(sample);
    follower.look();
    watcher.look();
    task.on_progress(
        {transport, sample, follower.log().is_empty() ? watcher.log() : follower.log()});
  };
  base::Result<lab::LabOutcome> outcome = lab::run_lab(options, *commands);
  if (!outcome.ok()) {
    return outcome.status();
  }
  follower.finish();
  watcher.finish();
  record.log = follower.log();
  record.watched = watcher.log();
  record.outcome = std::move(outcome).value();
  record.samples.push_back(lab::sample_of(record.outcome.fabric, record.outcome.elapsed));
  return {};
}

}  // namespace

RunRecord run_transport(const RunTask& task, const Transport& transport) {
  RunRecord record = record_for(task, transport);
  if (const base::Status status = run_command(task, record); !status.ok()) {
    record.not_made = status.message();
  }
  return record;
}

}  // namespace spillway::compare
