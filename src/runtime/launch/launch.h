// SPDX-License-Identifier: Apache-2.0
//
// What a launcher told this process: which rank it is, of how many, and where the ranks meet.
//
// The first family of variables whose rank is set speaks, and all it says about ranks is taken from
// it alone: under srun plus torchrun both have set theirs, and a rank of one with the size of the
// other is nobody's.
//
//   spillway   SPILLWAY_RANK SPILLWAY_WORLD_SIZE [SPILLWAY_LOCAL_RANK SPILLWAY_LOCAL_WORLD_SIZE]
//   torchrun   RANK WORLD_SIZE [LOCAL_RANK LOCAL_WORLD_SIZE] MASTER_ADDR MASTER_PORT
//              (also Kubeflow, Ray, and the lab)
//   openmpi    OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE ...
//   pmix       PMI_RANK PMI_SIZE ...
//   slurm      SLURM_PROCID SLURM_STEP_NUM_TASKS (or SLURM_NTASKS) ...
//
// Beside any family: SPILLWAY_COMM_ID=host:port says where to meet and goes before what the family
// says; SPILLWAY_PEERS and SPILLWAY_LISTEN say where the ranks' data goes, as a lab sets them;
// SPILLWAY_SERVERS adds parameter servers (servers.h).
//
// A pure function of the environment: names are not looked up, sockets not opened. Errors name the
// variable that is missing or wrong, and what to set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "net/address.h"
#include "runtime/launch/family.h"
#include "runtime/launch/rendezvous_point.h"

namespace spillway::runtime {

// Of a job.
inline constexpr auto kMaxRanks =
    static_cast<std::uint32_t>(base::variable("SPILLWAY_WORLD_SIZE").most);

struct Launch {
  std::uint16_t rank = 0;
  std::uint16_t world = 1;        // all ranks
  std::uint16_t servers = 0;      // of which the last ones are parameter servers
  std::uint16_t local_rank = 0;   // among the ranks on this machine
  std::uint16_t local_world = 1;  // 1 where the launcher does not say
  std::string launcher = "explicit";
  RendezvousPoint where{};                     // may be empty for a world of one
  std::vector<net::SocketAddress> peers{};     // of all ranks in order, or none
  std::optional<net::SocketAddress> listen{};  // where this rank waits for data

  bool on_one_machine() const { return local_world == world; }
};

// With `servers` parameter servers, whatever SPILLWAY_SERVERS says.
base::Result<Launch> launch_from_environment(const base::Environment& environment,
                                             std::optional<std::uint16_t> servers = std::nullopt);

// Whether a launcher has set a rank.
bool is_launched(const base::Environment& environment);

// A launch for those whose ranks meet by other means, such as torch's store.
struct LaunchOutline {
  std::string launcher{};
  Seat seat{};
  // Where rank 0 is, and a port for the application's own use: the same at all ranks, and none of
  // Spillway's. Empty and 0 where nothing says so.
  Place store{};
};
// Nothing where no launcher has set a rank.
base::Result<std::optional<LaunchOutline>> outline_of_launch(const base::Environment& environment);

// Of a process that learns its rank by other means than its launcher's; 0 where nothing says it.
base::Result<std::uint16_t> local_rank_from(const base::Environment& environment);

// SPILLWAY_PEERS and SPILLWAY_LISTEN, for a launch that has everything else but where to meet.
base::Status read_data_addresses(const base::Environment& environment, Launch& launch);

}  // namespace spillway::runtime
