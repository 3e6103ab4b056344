// SPDX-License-Identifier: Apache-2.0
//
// What a launcher told this process: its rank, the world size, and where the ranks meet.
//
// The first family whose rank variable is set supplies everything about ranks, and families are
// never mixed. Under srun plus torchrun both set theirs, and one's rank does not fit the other's
// size.
//
//   spillway   SPILLWAY_RANK SPILLWAY_WORLD_SIZE [SPILLWAY_LOCAL_RANK SPILLWAY_LOCAL_WORLD_SIZE]
//   torchrun   RANK WORLD_SIZE [LOCAL_RANK LOCAL_WORLD_SIZE] MASTER_ADDR MASTER_PORT
//              (also Kubeflow, Ray, and the lab)
//   openmpi    OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE ...
//   pmix       PMI_RANK PMI_SIZE ...
//   slurm      SLURM_PROCID SLURM_STEP_NUM_TASKS (or SLURM_NTASKS) ...
//
// With any family, SPILLWAY_COMM_ID=host:port overrides the family's meeting place. A lab sets
// SPILLWAY_PEERS and SPILLWAY_LISTEN, the addresses of the ranks' data. SPILLWAY_SERVERS adds
// parameter servers (servers.h).
//
// A pure function of the environment: it looks up no names and opens no sockets. Errors name the
// missing or wrong variable and what to set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "launch/family.h"
#include "launch/rendezvous_point.h"
#include "net/address.h"

namespace spillway::runtime {

// Limit of one job.
inline constexpr auto kMaxRanks =
    static_cast<std::uint32_t>(base::variable("SPILLWAY_WORLD_SIZE").most);

struct Launch {
  std::uint16_t rank = 0;
  std::uint16_t world = 1;        // all ranks
  std::uint16_t servers = 0;      // the last ranks, which are parameter servers
  std::uint16_t local_rank = 0;   // among the ranks on this machine
  std::uint16_t local_world = 1;  // 1 if the launcher does not say
  std::string launcher = "explicit";
  RendezvousPoint where{};                     // may be empty for a world of one
  std::vector<net::SocketAddress> peers{};     // of all ranks, by rank; or empty
  std::optional<net::SocketAddress> listen{};  // address at which this rank receives data

  bool on_one_machine() const { return local_world == world; }
};

// `servers`, if set, overrides SPILLWAY_SERVERS.
base::Result<Launch> launch_from_environment(const base::Environment& environment,
                                             std::optional<std::uint16_t> servers = std::nullopt);

// True if a launcher has set a rank.
bool is_launched(const base::Environment& environment);

// A launch without a meeting place, for ranks that meet by other means, such as torch's store.
struct LaunchOutline {
  std::string launcher{};
  Seat seat{};
  // Rank 0's host and a port for the application's own use, the same at all ranks and not used by
  // Spillway. Empty and 0 if unknown.
  Place store{};
};
// nullopt if no launcher has set a rank.
base::Result<std::optional<LaunchOutline>> outline_of_launch(const base::Environment& environment);

// The local rank for a process whose rank does not come from its launcher; 0 if nothing names it.
base::Result<std::uint16_t> local_rank_from(const base::Environment& environment);

// Reads SPILLWAY_PEERS and SPILLWAY_LISTEN into a launch that lacks only its meeting place.
base::Status read_data_addresses(const base::Environment& environment, Launch& launch);

}  // namespace spillway::runtime
