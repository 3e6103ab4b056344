// SPDX-License-Identifier: Apache-2.0
#include "launch/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "net/address.h"

namespace spillway::launch {

namespace {

// A rank and the size it must be below.
struct Pair {
  std::uint16_t rank = 0;
  std::uint16_t size = 1;
};

base::Result<Pair> read_pair(const base::Environment& environment, std::string_view rank_variable,
                             std::string_view size_variable) {
  const base::Result<std::uint32_t> size = environment.number_of(size_variable, {1, kMaxRanks});
  if (!size.ok()) {
    return size.status();
  }
  const base::Result<std::uint32_t> rank = environment.number_of(rank_variable, {0, kMaxRanks - 1});
  if (!rank.ok()) {
    return rank.status();
  }
  if (*rank >= *size) {
    return base::invalid_argument(
        fmt::format("{} is {} and {} is {}: ranks are numbered from 0 to one below their number",
                    rank_variable, *rank, size_variable, *size));
  }
  return Pair{static_cast<std::uint16_t>(*rank), static_cast<std::uint16_t>(*size)};
}

base::Status missing_size(const PositionVariables& variables) {
  return base::invalid_argument(fmt::format(
      "{} is set but {} is not: set both, or SPILLWAY_RANK and SPILLWAY_WORLD_SIZE instead",
      variables.rank, variables.world));
}

}  // namespace

base::Result<RankPosition> read_position(const base::Environment& environment,
                                         const PositionVariables& variables) {
  if (!environment.has(variables.world)) {
    return missing_size(variables);
  }
  const base::Result<Pair> global = read_pair(environment, variables.rank, variables.world);
  if (!global.ok()) {
    return global.status();
  }
  RankPosition position{.rank = global->rank, .world = global->size};
  if (environment.has(variables.local_rank) && environment.has(variables.local_world)) {
    const base::Result<Pair> local =
        read_pair(environment, variables.local_rank, variables.local_world);
    if (!local.ok()) {
      return local.status();
    }
    position.local_rank = local->rank;
    position.local_world = local->size;
    position.is_local_known = true;
  }
  if (position.local_world > position.world) {
    return base::invalid_argument(fmt::format("{} is {}, more than all ranks together: {} is {}",
                                              variables.local_world, position.local_world,
                                              variables.world, position.world));
  }
  return position;
}

std::span<const LaunchFamily> launch_families() {
  static const std::array<LaunchFamily, 5> kFamilies = {kSpillwayFamily, kTorchrunFamily,
                                                        kOpenMpiFamily, kPmiFamily, kSlurmFamily};
  return kFamilies;
}

std::vector<std::string> words_of(const base::Environment& environment,
                                  std::initializer_list<std::string_view> names) {
  std::vector<std::string> words;
  for (const std::string_view name : names) {
    if (environment.has(name)) {
      words.push_back(fmt::format("{}={}", name, environment.get_or(name, "")));
    }
  }
  return words;
}

base::Status no_meeting_place(std::string_view why) {
  return base::invalid_argument(fmt::format(
      "{}: set SPILLWAY_COMM_ID=host:port for all ranks, an address of rank 0's host and a port "
      "that is free there",
      why));
}

// Spillway's own variables.

namespace {

base::Result<RankPosition> spillway_position(const base::Environment& environment) {
  return read_position(environment, {"SPILLWAY_RANK", "SPILLWAY_WORLD_SIZE", "SPILLWAY_LOCAL_RANK",
                                     "SPILLWAY_LOCAL_WORLD_SIZE"});
}

std::vector<std::string> spillway_identity(const base::Environment& environment) {
  return words_of(environment, {"SPILLWAY_LAB_ID", "TORCHELASTIC_RUN_ID",
                                "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID"});
}

std::string host_of(const net::SocketAddress& address) {
  const std::string text = address.to_string();
  const std::string host = text.substr(0, text.rfind(':'));
  return address.is_ipv6() ? host.substr(1, host.size() - 2) : host;
}

// Data uses UDP, so the TCP port of the same number is free for the rendezvous.
base::Result<RendezvousPoint> spillway_meeting(const base::Environment& environment,
                                               const RankPosition&) {
  const std::string peers = environment.get_or("SPILLWAY_PEERS", "");
  const auto first = net::SocketAddress::parse(peers.substr(0, peers.find(',')));
  if (!first.ok()) {
    return no_meeting_place("SPILLWAY_RANK is set but SPILLWAY_COMM_ID is not");
  }
  return RendezvousPoint{
      .places = {{host_of(*first), first->port()}}, .local_name = {}, .nonce = {}};
}

}  // namespace

const LaunchFamily kSpillwayFamily = {.launcher = "spillway",
                                      .rank_variable = "SPILLWAY_RANK",
                                      .world_variable = "SPILLWAY_WORLD_SIZE",
                                      .position = spillway_position,
                                      .identity = spillway_identity,
                                      .meeting = spillway_meeting};

// torchrun and launchers that set its variables: Kubeflow's PyTorchJob, Ray Train, a lab.
//
// MASTER_PORT belongs to torch's store, so the ranks meet at ports derived from it. MASTER_ADDR is
// not part of the identity: Kubeflow gives rank 0 "localhost" and the others a name.

namespace {

base::Result<RankPosition> torchrun_position(const base::Environment& environment) {
  return read_position(environment, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
}

// Includes the restart count: ranks that missed the restart belong to another job.
std::vector<std::string> torchrun_identity(const base::Environment& environment) {
  return words_of(environment, {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                                "SPILLWAY_LAB_ID"});
}

base::Result<RendezvousPoint> torchrun_meeting(const base::Environment& environment,
                                               const RankPosition&) {
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
                                      .position = torchrun_position,
                                      .identity = torchrun_identity,
                                      .meeting = torchrun_meeting};

// Open MPI tells every rank the job's name, but not where rank 0 is. On one machine the ranks meet
// at a socket named after the job. Across machines, Open MPI 4 names mpirun's host. Rank 0 runs
// there unless mpirun's host takes no part; rank 0 notices that and fails.

namespace {

base::Result<RankPosition> openmpi_position(const base::Environment& environment) {
  return read_position(environment, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
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
                                                const RankPosition& position) {
  const std::string mpirun = environment.get_or("OMPI_MCA_orte_hnp_uri", "");
  const std::string daemon = environment.get_or("OMPI_MCA_orte_local_daemon_uri", "");
  const std::vector<std::string> hosts = hosts_of_uri(mpirun);
  if (hosts.empty()) {
    return no_meeting_place("mpirun started ranks on several machines and does not say where");
  }
  if (position.rank == 0 && daemon_name(daemon) != daemon_name(mpirun)) {
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
                                              const RankPosition& position) {
  const std::vector<std::string> words = openmpi_identity(environment);
  if (words.empty()) {
    return no_meeting_place("mpirun set neither PMIX_NAMESPACE nor OMPI_MCA_ess_base_jobid");
  }
  if (position.local_world != position.world) {
    return meeting_at_mpirun(environment, position);
  }
  RendezvousPoint point;
  point.local_name = "spillway-openmpi-" + to_hex(nonce_of(words));
  return point;
}

}  // namespace

const LaunchFamily kOpenMpiFamily = {.launcher = "openmpi",
                                     .rank_variable = "OMPI_COMM_WORLD_RANK",
                                     .world_variable = "OMPI_COMM_WORLD_SIZE",
                                     .position = openmpi_position,
                                     .identity = openmpi_identity,
                                     .meeting = openmpi_meeting};

// Launchers that use PMI: srun --mpi=pmi2, Hydra. PMIx has no family of its own: it sets a rank
// (PMIX_RANK) but no size. Launchers that use PMIx also set Open MPI's or Slurm's variables, which
// are read instead.

namespace {

base::Result<RankPosition> pmi_position(const base::Environment& environment) {
  return read_position(environment, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
}

std::vector<std::string> pmi_identity(const base::Environment& environment) {
  std::vector<std::string> words = words_of(environment, {"PMI_JOBID"});
  const std::vector<std::string> slurm = slurm_identity(environment);
  words.insert(words.end(), slurm.begin(), slurm.end());
  return words;
}

base::Result<RendezvousPoint> pmi_meeting(const base::Environment& environment,
                                          const RankPosition& position) {
  const std::vector<std::string> words = pmi_identity(environment);
  if (position.local_world == position.world && !words.empty()) {
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
                                 .position = pmi_position,
                                 .identity = pmi_identity,
                                 .meeting = pmi_meeting};

}  // namespace spillway::launch
