// SPDX-License-Identifier: Apache-2.0
#include "launch/launch.h"

#include <fmt/format.h>

#include "launch/family.h"
#include "launch/servers.h"

namespace spillway::runtime {
namespace {

base::Status nobody_speaks(const base::Environment& environment) {
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

const LaunchFamily* speaking(const base::Environment& environment) {
  for (const LaunchFamily& family : launch_families()) {
    if (environment.has(family.rank_variable)) {
      return &family;
    }
  }
  return nullptr;
}

base::Result<RendezvousPoint> place_of(const base::Environment& environment,
                                       const LaunchFamily& family, const Seat& seat) {
  if (const std::optional<std::string> id = environment.get("SPILLWAY_COMM_ID")) {
    const base::Result<Place> place = parse_place(*id);
    if (!place.ok()) {
      return place.status();
    }
    return RendezvousPoint{.places = {*place}, .local_name = {}, .nonce = {}};
  }
  return seat.world == 1 ? RendezvousPoint{} : family.meeting(environment, seat);
}

// The launcher is one of the words: ranks under different launchers belong to different jobs.
Nonce nonce_for(const base::Environment& environment, const LaunchFamily& family) {
  std::vector<std::string> words = family.identity(environment);
  words.emplace_back(family.launcher);
  words.push_back(environment.get_or("SPILLWAY_COMM_ID", ""));
  return nonce_of(words);
}

// The address for the application's own store: the host of Spillway's meeting place, another port.
Place store_of(const base::Environment& environment, const LaunchFamily& family, const Seat& seat) {
  const base::Result<RendezvousPoint> point = place_of(environment, family, seat);
  if (environment.has("SPILLWAY_COMM_ID") && point.ok()) {
    const Place& meeting = point->places.front();
    return {meeting.host, static_cast<std::uint16_t>(meeting.port + 1)};
  }
  Place store;
  if (seat.local_world == seat.world) {
    store.host = "127.0.0.1";
  } else if (point.ok() && !point->places.empty()) {
    store.host = point->places.front().host;
  }
  if (std::vector<std::string> words = family.identity(environment); !words.empty()) {
    words.emplace_back("store");
    store.port = derived_places(store.host, words).front().port;
  }
  return store;
}

}  // namespace

bool is_launched(const base::Environment& environment) {
  return speaking(environment) != nullptr;
}

base::Result<std::optional<LaunchOutline>> outline_of_launch(const base::Environment& environment) {
  const LaunchFamily* family = speaking(environment);
  if (family == nullptr) {
    return std::optional<LaunchOutline>();
  }
  const base::Result<Seat> seat = family->seat(environment);
  if (!seat.ok()) {
    return seat.status();
  }
  return std::optional(
      LaunchOutline{std::string(family->launcher), *seat, store_of(environment, *family, *seat)});
}

base::Result<std::uint16_t> local_rank_from(const base::Environment& environment) {
  const auto said = environment.optional_number("SPILLWAY_LOCAL_RANK");
  if (!said.ok()) {
    return said.status();
  }
  if (*said) {
    return static_cast<std::uint16_t>(**said);
  }
  const base::Result<std::optional<LaunchOutline>> outline = outline_of_launch(environment);
  return outline.ok() && *outline ? (*outline)->seat.local_rank : std::uint16_t{0};
}

base::Status read_data_addresses(const base::Environment& environment, Launch& launch) {
  if (const std::optional<std::string> text = environment.get("SPILLWAY_PEERS")) {
    const auto peers = net::parse_addresses(*text);
    if (!peers.ok()) {
      return base::refusal(base::variable("SPILLWAY_PEERS"), *text);
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
      return base::refusal(base::variable("SPILLWAY_LISTEN"), *text);
    }
    launch.listen = *listen;
  }
  return {};
}

base::Result<Launch> launch_from_environment(const base::Environment& environment,
                                             std::optional<std::uint16_t> told_servers) {
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
  const base::Result<std::uint16_t> servers =
      told_servers ? base::Result<std::uint16_t>(*told_servers) : servers_of(environment);
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
