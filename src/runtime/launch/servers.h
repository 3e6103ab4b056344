// SPDX-License-Identifier: Apache-2.0
//
// Jobs with parameter servers. Launchers start the workers and count them alone; SPILLWAY_SERVERS=N
// tells workers that N servers (`spillway ps`) belong to the job, as the ranks behind theirs.
//
// A server is started by hand and has none of the launcher's words, so all meet where both sides
// can be told: at SPILLWAY_COMM_ID, an address of worker 0's host; or, in a lab, at the first of
// SPILLWAY_PEERS, which then names the servers too.
//
// Pure functions of the environment; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "runtime/launch/launch.h"

namespace spillway::runtime {

// Which of a job's parameter servers a process is.
struct ServerSeat {
  std::uint16_t index = 0;
  std::uint16_t servers = 1;
  std::uint16_t workers = 1;
  std::string place{};  // host:port where all meet; empty: where the environment says
};

// SPILLWAY_SERVERS; 0 where it is not set.
base::Result<std::uint16_t> servers_of(const base::Environment& environment);

// Adds the servers to what a launcher told a worker.
base::Status join_servers(const base::Environment& environment, std::uint16_t servers,
                          Launch& worker);

base::Result<Launch> launch_of_server(const base::Environment& environment, const ServerSeat& seat);

}  // namespace spillway::runtime
