// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch_slurm.h"

#include <fmt/format.h>

#include "runtime/launch.h"
#include "runtime/node_list.h"

namespace spillway::runtime {
namespace {

// A step's own variables go before the job's: the first step of a job may use half of its nodes.
std::string_view either(const Environment& environment, std::string_view of_step,
                        std::string_view of_job) {
  return environment.has(of_step) ? of_step : of_job;
}

// How many tasks this node has; 1 where Slurm does not say.
base::Result<std::uint32_t> tasks_here(const Environment& environment) {
  const std::string_view name =
      either(environment, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  if (!environment.has(name)) {
    return std::uint32_t{1};
  }
  const auto counts = expand_task_counts(environment.get_or(name, ""));
  const auto node = environment.number_or("SLURM_NODEID", kMostNodes, 0);
  if (!counts.ok()) {
    return base::invalid_argument(fmt::format("{}: {}", name, counts.status().message()));
  }
  if (!node.ok()) {
    return node.status();
  }
  return *node < counts->size() ? (*counts)[*node] : std::uint32_t{1};
}

base::Result<Seat> seat(const Environment& environment) {
  base::Result<Seat> seat = read_seat(
      environment,
      {"SLURM_PROCID", either(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), {}, {}});
  if (!seat.ok()) {
    return seat;
  }
  const auto local_rank = environment.number_or("SLURM_LOCALID", kMostRanks, 0);
  const auto local_world = tasks_here(environment);
  if (!local_rank.ok()) {
    return local_rank.status();
  }
  if (!local_world.ok()) {
    return local_world.status();
  }
  if (*local_rank >= *local_world || *local_world > seat->world) {
    return base::invalid_argument(fmt::format(
        "Slurm's variables do not fit together: SLURM_LOCALID is {} of {} tasks on this "
        "node and {} in all; set SPILLWAY_RANK and SPILLWAY_WORLD_SIZE",
        *local_rank, *local_world, seat->world));
  }
  seat.value().local_rank = static_cast<std::uint16_t>(*local_rank);
  seat.value().local_world = static_cast<std::uint16_t>(*local_world);
  return seat;
}

base::Result<RendezvousPoint> meeting(const Environment& environment, const Seat&) {
  return slurm_meeting(environment);
}

}  // namespace

std::vector<std::string> slurm_identity(const Environment& environment) {
  return words_of(environment, {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"});
}

base::Result<RendezvousPoint> slurm_meeting(const Environment& environment) {
  const std::string_view name = either(environment, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  if (!environment.has(name) || !environment.has("SLURM_JOB_ID")) {
    return no_meeting_place(fmt::format(
        "Slurm set no {}",
        environment.has(name) ? "SLURM_JOB_ID" : "SLURM_STEP_NODELIST or SLURM_JOB_NODELIST"));
  }
  const auto nodes = expand_node_list(environment.get_or(name, ""));
  if (!nodes.ok()) {
    return base::invalid_argument(fmt::format("{}: {}", name, nodes.status().message()));
  }
  RendezvousPoint point;
  point.places = derived_places(nodes->front(), slurm_identity(environment));
  return point;
}

const LaunchFamily kSlurmFamily = {.launcher = "slurm",
                                   .rank_variable = "SLURM_PROCID",
                                   .world_variable = "SLURM_NTASKS",
                                   .seat = seat,
                                   .identity = slurm_identity,
                                   .meeting = meeting};

}  // namespace spillway::runtime
