// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch.h"

#include <fmt/format.h>

#include "runtime/launch_family.h"
#include "runtime/launch_servers.h"

namespace spillway::runtime {
namespace {

base::Status nobody_speaks(const Environment& environment) {
  for (const LaunchFamily& family : launch_families()) {
    if (environment.has(family.world_variable)) {
      return base::invalid_argument(fmt::format("{} is set but {} is not: set both",
                                                family.world_variable, family.rank_variable));
    }
  }
  if (environment.has("PMIX_RANK")) {
    return base::invalid_argument(
        "PMIX_RANK is set, but PMIx leaves no number of ranks in the environment: set "
        "SPILLWAY_RANK, SPILLWAY_WORLD_SIZE and SPILLWAY_COMM_ID");
  }
  return base::invalid_argument(
      "no launcher has set a rank: start the ranks with torchrun, mpirun, srun or spillway lab "
      "run, or set SPILLWAY_RANK, SPILLWAY_WORLD_SIZE and SPILLWAY_COMM_ID=host:port");
}

const LaunchFamily* speaking(const Environment& environment) {
  for (const LaunchFamily& family : launch_families()) {
    if (environment.has(family.rank_variable)) {
      return &family;
    }
  }
  return nullptr;
}

base::Result<RendezvousPoint> place_of(const Environment& environment, const LaunchFamily& family,
                                       const Seat& seat) {
  if (const std::optional<std::string> id = environment.get("SPILLWAY_COMM_ID")) {
    const base::Result<Place> place = parse_place(*id, "SPILLWAY_COMM_ID");
    if (!place.ok()) {
      return place.status();
    }
    return RendezvousPoint{.places = {*place}, .local_name = {}, .nonce = {}};
  }
  return seat.world == 1 ? RendezvousPoint{} : family.meeting(environment, seat);
}

// The launcher counts as a word: ranks that were told by different ones are of different jobs.
Nonce nonce_for(const Environment& environment, const LaunchFamily& family) {
  std::vector<std::string> words = family.identity(environment);
  words.emplace_back(family.launcher);
  words.push_back(environment.get_or("SPILLWAY_COMM_ID", ""));
  return nonce_of(words);
}

}  // namespace

base::Status read_data_addresses(const Environment& environment, Launch& launch) {
  if (const std::optional<std::string> text = environment.get("SPILLWAY_PEERS")) {
    const auto peers = net::parse_addresses(*text);
    if (!peers.ok()) {
      return base::invalid_argument("SPILLWAY_PEERS: " + peers.status().message());
    }
    if (peers->size() != launch.world) {
      return base::invalid_argument(
          fmt::format("SPILLWAY_PEERS names {} addresses for {} ranks ({}): set as many, or unset "
                      "it and let the ranks find each other",
                      peers->size(), launch.world, launch.launcher));
    }
    launch.peers = *peers;
  }
  if (const std::optional<std::string> text = environment.get("SPILLWAY_LISTEN")) {
    const auto listen = net::SocketAddress::parse(*text);
    if (!listen.ok()) {
      return base::invalid_argument("SPILLWAY_LISTEN: " + listen.status().message());
    }
    launch.listen = *listen;
  }
  return {};
}

base::Result<Launch> launch_from_environment(const Environment& environment) {
  const LaunchFamily* family = speaking(environment);
  if (family == nullptr) {
    return nobody_speaks(environment);
  }
  const base::Result<Seat> seat = family->seat(environment);
  if (!seat.ok()) {
    return seat.status();
  }
  Launch launch{.rank = seat->rank,
                .world = seat->world,
                .local_rank = seat->local_rank,
                .local_world = seat->local_world,
                .launcher = std::string(family->launcher)};
  const base::Result<std::uint16_t> servers = servers_of(environment);
  if (!servers.ok()) {
    return servers.status();
  }
  if (*servers > 0) {
    if (base::Status status = join_servers(environment, *servers, launch); !status.ok()) {
      return status;
    }
  }
  const base::Status data = read_data_addresses(environment, launch);
  if (!data.ok()) {
    return data;
  }
  if (launch.servers > 0) {
    return launch;
  }
  base::Result<RendezvousPoint> where = place_of(environment, *family, *seat);
  if (!where.ok()) {
    return where.status();
  }
  launch.where = std::move(where).value();
  launch.where.nonce = nonce_for(environment, *family);
  return launch;
}

}  // namespace spillway::runtime
