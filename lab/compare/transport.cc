// SPDX-License-Identifier: Apache-2.0
#include "lab/compare/transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include "base/own_file.h"
#include "lab/compare/comparison.h"
#include "lab/compare/progress_log.h"
#include "lab/launcher.h"
#include "lab/rank_environment.h"
#include "net/system_call.h"

namespace spillway::compare {

namespace {

constexpr const char* kCubic = "cubic";
constexpr const char* kFlat = "spillway-flat";
constexpr const char* kNoControl = "-";  // the name of no transport

Transport over_gloo(std::string name, std::string tcp, std::string hook, std::string control) {
  const bool is_named = name.ends_with(tcp);
  const std::string title = is_named ? name : fmt::format("{} ({})", name, tcp);
  std::vector<std::string> variables = {"SPILLWAY_LAB_BACKEND=gloo",
                                        fmt::format("SPILLWAY_LAB_HOOK={}", hook)};
  return {
      std::move(name),      title, "gloo", std::move(tcp), std::move(hook), std::move(control), "",
      std::move(variables), {}};
}

// A variable that is set but empty counts as unset, so the caller's own value has no effect.
Transport over_spillway(std::string name, std::string control, std::string_view carrier,
                        std::vector<std::string> variables, std::vector<std::string> defaults) {
  const std::string title = carrier == "tcp" ? fmt::format("{} ({})", name, kCubic) : name;
  variables.emplace_back("SPILLWAY_LAB_BACKEND=spillway");
  variables.emplace_back(name == kFlat ? "SPILLWAY_LAB_HOOK=flat" : "SPILLWAY_LAB_HOOK=");
  variables.push_back(fmt::format("SPILLWAY_CARRIER={}", carrier));
  const std::string flat = name == "spillway" ? kFlat : "";
  return {std::move(name),
          title,
          "spillway",
          kCubic,
          "",
          std::move(control),
          flat,
          std::move(variables),
          std::move(defaults)};
}

const std::vector<Transport>& known_transports() {
  static const std::vector<Transport> kTransports = {
      over_gloo("tcp", kCubic, "", "tcp"),
      over_gloo("tcp-bbr", "bbr", "", "tcp"),
      over_gloo("tcp-fp16", kCubic, "fp16", "tcp-fp16"),
      over_gloo("tcp-powersgd", kCubic, "powersgd", "tcp-powersgd"),
      over_spillway("spillway-exact", kNoControl, "auto", {"SPILLWAY_CODEC=exact"}, {}),
      over_spillway("spillway-16", "tcp-fp16", "auto",
                    {"SPILLWAY_CODEC=planes", "SPILLWAY_BITS=16"}, {}),
      over_spillway("spillway", "spillway-over-tcp", "auto", {}, {"SPILLWAY_CODEC=planes"}),
      over_spillway(kFlat, "spillway-over-tcp", "auto", {}, {"SPILLWAY_CODEC=planes"}),
      over_spillway("spillway-over-tcp", "spillway-over-tcp", "tcp", {},
                    {"SPILLWAY_CODEC=planes"})};
  return kTransports;
}

base::Result<Transport> find_transport(std::string_view name) {
  std::string known;
  for (const Transport& transport : known_transports()) {
    if (transport.name == name) {
      return transport;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", transport.name);
  }
  return base::invalid_argument(fmt::format("unknown transport '{}'; known are {}", name, known));
}

using Replacement = std::pair<std::string_view, std::string_view>;

// The placeholder at the beginning of `text`, or null.
const Replacement* placeholder_at(std::string_view text, std::span<const Replacement> all) {
  const auto found = std::find_if(all.begin(), all.end(), [text](const Replacement& one) {
    return text.starts_with(one.first);
  });
  return found == all.end() ? nullptr : &*found;
}

// In one pass, so that inserted text is not replaced again.
std::string replaced(std::string_view word, std::span<const Replacement> replacements) {
  std::string result;
  while (!word.empty()) {
    if (const Replacement* one = placeholder_at(word, replacements); one != nullptr) {
      result += one->second;
      word.remove_prefix(one->first.size());
    } else {
      result += word.front();
      word.remove_prefix(1);
    }
  }
  return result;
}

}  // namespace

base::Result<std::vector<Transport>> parse_transports(std::string_view names) {
  std::vector<Transport> transports;
  while (true) {
    const std::size_t comma = names.find(',');
    base::Result<Transport> transport = find_transport(names.substr(0, comma));
    if (!transport.ok()) {
      return transport.status();
    }
    const std::string& name = transport->name;
    if (std::any_of(transports.begin(), transports.end(),
                    [&name](const Transport& other) { return other.name == name; })) {
      return base::invalid_argument(fmt::format("transport '{}' is named twice", name));
    }
    transports.push_back(std::move(transport).value());
    if (comma == std::string_view::npos) {
      return transports;
    }
    names.remove_prefix(comma + 1);
  }
}

std::vector<std::string> command_for(const std::vector<std::string>& command,
                                     const Transport& transport, const std::string& log) {
  const Replacement replacements[] = {
      {"{backend}", transport.backend}, {"{transport}", transport.name}, {"{log}", log}};
  std::vector<std::string> words;
  for (const std::string& word : command) {
    words.push_back(replaced(word, replacements));
  }
  return words;
}

bool depends_on_transport(const std::vector<std::string>& command) {
  return std::any_of(command.begin(), command.end(), [](const std::string& word) {
    return word.find("{backend}") != std::string::npos ||
           word.find("{transport}") != std::string::npos;
  });
}

namespace {

std::vector<std::string> environment_of_caller(const RunTask& task) {
  return lab::with_variables(lab::current_environment(), task.options.environment);
}

// Variables that let the lab watch a PyTorch script; empty if the package is not installed.
std::vector<std::string> watch_variables_for(const RunTask& task) {
  return lab::watch_variables(lab::path_of_this_tool(), environment_of_caller(task));
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
  const std::vector<std::string> of_caller = environment_of_caller(task);
  for (const std::string& variable : record.transport.defaults) {
    if (!lab::is_set(variable.substr(0, variable.find('=')), of_caller)) {
      variables.push_back(variable);
    }
  }
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
  return std::vector<lab::RankCommand>(plan->hosts.size() * task.options.ranks_per_host, command);
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
