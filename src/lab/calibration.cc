// SPDX-License-Identifier: Apache-2.0
#include "lab/calibration.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "kernel/switch_plan.h"
#include "lab/launcher.h"
#include "lab/rank_environment.h"
#include "net/system_call.h"
#include "scenario/dilation.h"

namespace spillway::lab {
namespace {

// A trial may use only this share of the bearable lateness. TCP frames cost the fabric more than
// the trial's, because it carries them through the receiver's network stack.
constexpr double kShareOfLimit = 0.25;

base::Result<LabOutcome> run_trial(const LabOptions& options, double dilation, int output) {
  LabOptions trial = options;
  trial.scenario = scenario::dilated(options.scenario, dilation);
  trial.dataplane = Dataplane::kUser;
  trial.output.out = trial.output.err = output;
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
  base::Result<LabOutcome> outcome = run_lab(trial, commands);
  if (!outcome.ok() || outcome->interrupted_by != 0) {
    return outcome;
  }
  if (outcome->worst_exit_code() != 0) {
    return base::Status(base::StatusCode::kInternal,
                        fmt::format("the trial of the network ended with exit code {}",
                                    outcome->worst_exit_code()));
  }
  return outcome;
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

std::optional<double> next_dilation(const Pace& pace, double dilation) {
  if (pace.missed == 0 && pace.mean_late_us <= kShareOfLimit * pace.limit_us) {
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

base::Result<Calibration> calibrate(const LabOptions& options) {
  const net::UniqueFd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!nowhere.valid()) {
    return net::system_error("open /dev/null", errno);
  }
  for (double dilation = 1;;) {
    const base::Result<LabOutcome> trial = run_trial(options, dilation, nowhere.get());
    if (!trial.ok()) {
      return trial.status();
    }
    if (trial->interrupted_by != 0) {
      return Calibration{dilation, trial->interrupted_by};
    }
    const std::optional<double> next = next_dilation(trial->pace, dilation);
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
