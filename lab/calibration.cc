// SPDX-License-Identifier: Apache-2.0
#include "lab/calibration.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "lab/launcher.h"
#include "lab/load.h"
#include "lab/rank_environment.h"
#include "net/system_call.h"
#include "sim/scenario/dilation.h"
#include "switch/kernel/switch_plan.h"

namespace spillway::lab {
namespace {

// A trial may use only this share of the bearable lateness. TCP frames cost the fabric more than
// the trial's, because it carries them through the receiver's network stack.
constexpr double kShareOfLimit = 0.25;

// What ranks print, kept in memory.
base::Result<net::UniqueFd> make_memory_file() {
  net::UniqueFd file(::memfd_create("spillway-trial", MFD_CLOEXEC));
  return file.valid() ? base::Result<net::UniqueFd>(std::move(file))
                      : net::system_error("make a file in memory", errno);
}

std::string text_in(const net::UniqueFd& file) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; (got = ::pread(file.get(), buffer.data(), buffer.size(),
                                       static_cast<off_t>(text.size()))) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

struct Trial {
  Pace pace;
  double share_sent = 0.0;  // by the host that sent the least of its load
  int interrupted_by = 0;
};

base::Result<Trial> run_trial(const LabOptions& options, double dilation) {
  const base::Result<net::UniqueFd> printed = make_memory_file();
  if (!printed.ok()) {
    return printed.status();
  }
  LabOptions trial = options;
  trial.scenario = scenario::dilated(options.scenario, dilation);
  trial.dataplane = Dataplane::kUser;
  trial.output.out = trial.output.err = printed->get();
  trial.on_sample = {};
  trial.trace = {};
  trial.name.clear();
  const base::Result<HostPlan> plan = make_host_plan(trial.scenario, {.mtu = trial.mtu});
  if (!plan.ok()) {
    return plan.status();
  }
  std::vector<RankCommand> commands;
  for (const HostEntry& host : plan->hosts) {
    commands.push_back({{path_of_this_tool(), "lab", "load", "--rate",
                         std::to_string(host.rate.count()), "--mtu", std::to_string(trial.mtu)},
                        {}});
  }
  const base::Result<LabOutcome> outcome = run_lab(trial, commands);
  if (!outcome.ok()) {
    return outcome.status();
  }
  if (outcome->worst_exit_code() != 0 && outcome->interrupted_by == 0) {
    return base::Status(base::StatusCode::kInternal,
                        fmt::format("the trial of the network ended with exit code {}",
                                    outcome->worst_exit_code()));
  }
  return Trial{outcome->pace, least_share_sent(text_in(*printed), commands.size()),
               outcome->interrupted_by};
}

// Half as many hosts halve the fabric's work. Shapes with several switches may not allow it.
std::string too_slow_text(const scenario::Scenario& scenario, double dilation) {
  const scenario::TopologyOptions& topology = scenario.topology;
  const bool can_be_halved =
      topology.kind == scenario::TopologyKind::kOneSwitch && topology.hosts >= 4;
  return fmt::format(
      "this machine does not emulate the network on time, not even {:g} times slower, at {}: give "
      "{}--allow-late to run it all the same, without measuring",
      dilation, rate_option(scenario::dilated(scenario, dilation).topology.rate),
      can_be_halved ? fmt::format("--hosts {}, or ", topology.hosts / 2) : "");
}

}  // namespace

base::Result<bool> can_be_late(const LabOptions& options) {
  const base::Result<Isolation> isolation = resolve_isolation(options.isolation);
  if (!isolation.ok()) {
    return isolation.status();
  }
  const bool can_be_in_kernel =
      *isolation == Isolation::kRoot && kernel::check_scenario(options.scenario).ok();
  const bool in_kernel = options.dataplane == Dataplane::kBpf ||
                         (options.dataplane == Dataplane::kAuto && can_be_in_kernel);
  return *isolation != Isolation::kNone && !in_kernel;
}

std::optional<double> next_dilation(const Pace& pace, double share_sent, double dilation) {
  if (pace.missed == 0 && pace.mean_late_us <= kShareOfLimit * pace.limit_us &&
      share_sent >= kLeastShareSent) {
    return dilation;
  }
  return 2 * dilation <= kMaxDilation ? std::optional(2 * dilation) : std::nullopt;
}

double slowdown_after(const Pace& late) {
  double slowdown = late.missed > 0 ? 4 : 2;
  while (slowdown < kMaxSlowdown && late.mean_late_us > slowdown * late.limit_us) {
    slowdown *= 2;
  }
  return slowdown;
}

std::string remedy_after(const scenario::Scenario& scenario, const Pace& late) {
  const double slowdown = slowdown_after(late);
  return scenario::can_be_dilated(scenario)
             ? fmt::format("give --rate {}",
                           rate_option(scenario::dilated(scenario, slowdown).topology.rate))
             : fmt::format(
                   "give the links of its topology file {0:g} times lower rates and {0:g} "
                   "times longer delays",
                   slowdown);
}

AfterRun after_run(const EndedRun& run) {
  const bool lab_chooses_rate =
      !run.rate_is_given && !run.allows_late && run.could_be_tried && !run.is_staged;
  if (!run.was_late || !lab_chooses_rate) {
    return AfterRun::kKeep;
  }
  return run.can_be_slower ? AfterRun::kRunAgainSlower : AfterRun::kFail;
}

base::Result<Calibration> calibrate(const LabOptions& options) {
  for (double dilation = 1;;) {
    const base::Result<Trial> trial = run_trial(options, dilation);
    if (!trial.ok()) {
      return trial.status();
    }
    if (trial->interrupted_by != 0) {
      return Calibration{dilation, trial->interrupted_by};
    }
    const std::optional<double> next = next_dilation(trial->pace, trial->share_sent, dilation);
    if (!next) {
      return base::Status(base::StatusCode::kUnavailable,
                          too_slow_text(options.scenario, dilation));
    }
    if (*next == dilation) {
      return Calibration{dilation, 0};
    }
    if (!scenario::can_be_dilated(options.scenario)) {
      return base::Status(base::StatusCode::kUnavailable,
                          "this machine does not emulate the network on time: " +
                              remedy_after(options.scenario, trial->pace));
    }
    dilation = *next;
  }
}

std::string rate_option(base::BitRate rate) {
  return rate.count() % 1'000'000 == 0 ? fmt::format("{}mbit", rate.count() / 1'000'000)
                                       : fmt::format("{}kbit", rate.count() / 1'000);
}

}  // namespace spillway::lab
