// SPDX-License-Identifier: Apache-2.0
//
// Jobs with parameter servers. Launchers start and count only the workers. SPILLWAY_SERVERS=N tells
// the workers that N servers (`spillway ps`) belong to the job; their ranks follow the workers'.
//
// A server is started by hand and lacks the launcher's variables, so all meet at an address that
// both sides can be given. That is SPILLWAY_COMM_ID, an address of worker 0's host. In a lab it is
// the first of SPILLWAY_PEERS, which then names the servers too.
//
// Pure functions of the environment; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "launch/launch.h"

namespace spillway::runtime {

// Which of a job's parameter servers a process is.
struct ServerSeat {
  std::uint16_t index = 0;
  std::uint16_t servers = 1;
  std::uint16_t workers = 1;
  std::string place{};  // host:port where all meet; empty: from the environment
};

// SPILLWAY_SERVERS; 0 if unset.
base::Result<std::uint16_t> servers_of(const base::Environment& environment);

// Adds the servers to a worker's launch.
base::Status join_servers(const base::Environment& environment, std::uint16_t servers,
                          Launch& worker);

base::Result<Launch> launch_of_server(const base::Environment& environment, const ServerSeat& seat);

}  // namespace spillway::runtime
