// SPDX-License-Identifier: Apache-2.0
#include "launch/servers.h"

#include <fmt/format.h>

#include <array>

#include "launch/family.h"

namespace spillway::runtime {
namespace {

std::string meeting_place(const base::Environment& environment) {
  const std::string peers = environment.get_or("SPILLWAY_PEERS", "");
  return environment.get_or("SPILLWAY_COMM_ID", peers.substr(0, peers.find(',')));
}

bool is_on_this_machine(const std::string& place) {
  return place.starts_with("127.") || place.starts_with("localhost:") || place.starts_with("[::1]");
}

base::Status check_world(unsigned workers, unsigned servers) {
  if (workers == 0 || servers == 0 || workers + servers > kMaxRanks) {
    return base::invalid_argument(
        fmt::format("{} workers and {} parameter servers: at least one of each, and at most {} "
                    "together",
                    workers, servers, kMaxRanks));
  }
  return {};
}

// Sets the place where workers and servers meet and the nonce by which they recognize each other.
// `told` overrides the environment.
base::Status take_meeting(const base::Environment& environment, const std::string& told,
                          Launch& launch) {
  const std::string text = told.empty() ? meeting_place(environment) : told;
  if (text.empty()) {
    return no_meeting_place("workers and parameter servers meet where SPILLWAY_COMM_ID says");
  }
  const base::Result<Place> place = parse_place(text);
  if (!place.ok()) {
    return place.status();
  }
  const std::array<std::string, 3> words = {"parameter servers", text,
                                            environment.get_or("SPILLWAY_LAB_ID", "")};
  launch.where = {.places = {*place}, .local_name = {}, .nonce = nonce_of(words)};
  launch.local_world = is_on_this_machine(text) ? launch.world : std::uint16_t{1};
  return {};
}

}  // namespace

base::Result<std::uint16_t> servers_of(const base::Environment& environment) {
  const base::Result<std::int64_t> servers = environment.number("SPILLWAY_SERVERS");
  if (!servers.ok()) {
    return servers.status();
  }
  return static_cast<std::uint16_t>(*servers);
}

base::Status join_servers(const base::Environment& environment, std::uint16_t servers,
                          Launch& worker) {
  if (base::Status status = check_world(worker.world, servers); !status.ok()) {
    return status;
  }
  worker.servers = servers;
  worker.world = static_cast<std::uint16_t>(worker.world + servers);
  return take_meeting(environment, /*told=*/"", worker);
}

base::Result<Launch> launch_of_server(const base::Environment& environment,
                                      const ServerSeat& seat) {
  if (base::Status status = check_world(seat.workers, seat.servers); !status.ok()) {
    return status;
  }
  if (seat.index >= seat.servers) {
    return base::invalid_argument(
        fmt::format("parameter server {} of {}: they are numbered from 0 to one below their number",
                    seat.index, seat.servers));
  }
  Launch launch;
  launch.rank = static_cast<std::uint16_t>(seat.workers + seat.index);
  launch.world = static_cast<std::uint16_t>(seat.workers + seat.servers);
  launch.servers = seat.servers;
  launch.launcher = "spillway ps";
  if (base::Status status = read_data_addresses(environment, launch); !status.ok()) {
    return status;
  }
  if (base::Status status = take_meeting(environment, seat.place, launch); !status.ok()) {
    return status;
  }
  return launch;
}

}  // namespace spillway::runtime
