// SPDX-License-Identifier: Apache-2.0
//
// torchrun and launchers that set its variables: Kubeflow's PyTorchJob, Ray Train, a lab.
//
// MASTER_PORT belongs to torch's store, so the ranks meet at ports derived from it. MASTER_ADDR is
// not part of the identity: Kubeflow gives rank 0 "localhost" and the others a name.
#include "launch/family.h"

namespace spillway::runtime {
namespace {

base::Result<Seat> torchrun_seat(const base::Environment& environment) {
  return read_seat(environment, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
}

// Includes the restart count: ranks that missed the restart belong to another job.
std::vector<std::string> torchrun_identity(const base::Environment& environment) {
  return words_of(environment, {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                                "SPILLWAY_LAB_ID"});
}

base::Result<RendezvousPoint> torchrun_meeting(const base::Environment& environment, const Seat&) {
  if (!environment.has("MASTER_ADDR")) {
    return no_meeting_place("RANK is set but MASTER_ADDR is not, so rank 0 cannot be found");
  }
  if (!environment.has("MASTER_PORT")) {
    return no_meeting_place("MASTER_ADDR is set but MASTER_PORT is not");
  }
  const base::Result<std::uint32_t> port = environment.number_of("MASTER_PORT", {0, 65535});
  if (!port.ok()) {
    return port.status();
  }
  RendezvousPoint point;
  point.places =
      derived_places(environment.get_or("MASTER_ADDR", ""), torchrun_identity(environment));
  return point;
}

}  // namespace

const LaunchFamily kTorchrunFamily = {.launcher = "torchrun",
                                      .rank_variable = "RANK",
                                      .world_variable = "WORLD_SIZE",
                                      .seat = torchrun_seat,
                                      .identity = torchrun_identity,
                                      .meeting = torchrun_meeting};

}  // namespace spillway::runtime
