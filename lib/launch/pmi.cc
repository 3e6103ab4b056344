// SPDX-License-Identifier: Apache-2.0
//
// Launchers that use PMI: srun --mpi=pmi2, Hydra. PMIx has no family of its own: it sets a rank
// (PMIX_RANK) but no size. Launchers that use PMIx also set Open MPI's or Slurm's variables, which
// are read instead.
#include "launch/family.h"
#include "launch/slurm.h"

namespace spillway::runtime {
namespace {

base::Result<Seat> pmi_seat(const base::Environment& environment) {
  return read_seat(environment, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
}

std::vector<std::string> pmi_identity(const base::Environment& environment) {
  std::vector<std::string> words = words_of(environment, {"PMI_JOBID"});
  const std::vector<std::string> slurm = slurm_identity(environment);
  words.insert(words.end(), slurm.begin(), slurm.end());
  return words;
}

base::Result<RendezvousPoint> pmi_meeting(const base::Environment& environment, const Seat& seat) {
  const std::vector<std::string> words = pmi_identity(environment);
  if (seat.local_world == seat.world && !words.empty()) {
    RendezvousPoint point;
    point.local_name = "spillway-pmi-" + to_hex(nonce_of(words));
    return point;
  }
  if (environment.has("SLURM_JOB_ID")) {
    return slurm_meeting(environment);
  }
  return no_meeting_place("PMI_RANK is set, but PMI's variables do not say where rank 0 is");
}

}  // namespace

const LaunchFamily kPmiFamily = {.launcher = "pmix",
                                 .rank_variable = "PMI_RANK",
                                 .world_variable = "PMI_SIZE",
                                 .seat = pmi_seat,
                                 .identity = pmi_identity,
                                 .meeting = pmi_meeting};

}  // namespace spillway::runtime
