// SPDX-License-Identifier: Apache-2.0
//
// Open MPI tells every rank the job's name, but not where rank 0 is. On one machine the ranks meet
// at a socket named after the job. Across machines, Open MPI 4 names mpirun's host. Rank 0 runs
// there unless mpirun's host takes no part; rank 0 notices that and fails.
#include <algorithm>

#include "launch/family.h"

namespace spillway::runtime {
namespace {

base::Result<Seat> openmpi_seat(const base::Environment& environment) {
  return read_seat(environment, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                 "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
}

// Variables with the same value at every rank of a job; PMIX_SERVER_URI, for one, differs.
std::vector<std::string> openmpi_identity(const base::Environment& environment) {
  return words_of(environment, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                                "OMPI_MCA_orte_precondition_transports"});
}

void append_hosts(std::string_view hosts, std::vector<std::string>& all) {
  while (!hosts.empty()) {
    const std::size_t comma = std::min(hosts.find(','), hosts.size());
    std::string host(hosts.substr(0, comma));
    std::erase_if(host, [](char c) { return c == '[' || c == ']'; });
    if (!host.empty()) {
      all.push_back(host);
    }
    hosts.remove_prefix(std::min(comma + 1, hosts.size()));
  }
}

// "1851195392.0;tcp://192.0.2.2,10.0.0.2:33685;tcp6://[fd00::2]:60473" yields three addresses.
std::vector<std::string> hosts_of_uri(std::string_view uri) {
  std::vector<std::string> hosts;
  while (!uri.empty()) {
    const std::size_t semicolon = std::min(uri.find(';'), uri.size());
    const std::string_view part = uri.substr(0, semicolon);
    const std::size_t scheme = part.find("://");
    const std::size_t port = part.rfind(':');
    if (scheme != std::string_view::npos && port > scheme) {
      append_hosts(part.substr(scheme + 3, port - scheme - 3), hosts);
    }
    uri.remove_prefix(std::min(semicolon + 1, uri.size()));
  }
  return hosts;
}

// "1851195392.0" of the URI, which identifies the daemon on every machine.
std::string daemon_name(const std::string& uri) {
  return uri.substr(0, uri.find(';'));
}

base::Result<RendezvousPoint> meeting_at_mpirun(const base::Environment& environment,
                                                const Seat& seat) {
  const std::string mpirun = environment.get_or("OMPI_MCA_orte_hnp_uri", "");
  const std::string daemon = environment.get_or("OMPI_MCA_orte_local_daemon_uri", "");
  const std::vector<std::string> hosts = hosts_of_uri(mpirun);
  if (hosts.empty()) {
    return no_meeting_place("mpirun started ranks on several machines and does not say where");
  }
  if (seat.rank == 0 && daemon_name(daemon) != daemon_name(mpirun)) {
    return no_meeting_place(
        "rank 0 is not on mpirun's machine, where the others would look for it");
  }
  RendezvousPoint point;
  for (const std::string& host : hosts) {
    const std::vector<Place> places = derived_places(host, openmpi_identity(environment));
    point.places.insert(point.places.end(), places.begin(), places.end());
  }
  return point;
}

base::Result<RendezvousPoint> openmpi_meeting(const base::Environment& environment,
                                              const Seat& seat) {
  const std::vector<std::string> words = openmpi_identity(environment);
  if (words.empty()) {
    return no_meeting_place("mpirun set neither PMIX_NAMESPACE nor OMPI_MCA_ess_base_jobid");
  }
  if (seat.local_world != seat.world) {
    return meeting_at_mpirun(environment, seat);
  }
  RendezvousPoint point;
  point.local_name = "spillway-openmpi-" + to_hex(nonce_of(words));
  return point;
}

}  // namespace

const LaunchFamily kOpenMpiFamily = {.launcher = "openmpi",
                                     .rank_variable = "OMPI_COMM_WORLD_RANK",
                                     .world_variable = "OMPI_COMM_WORLD_SIZE",
                                     .seat = openmpi_seat,
                                     .identity = openmpi_identity,
                                     .meeting = openmpi_meeting};

}  // namespace spillway::runtime
