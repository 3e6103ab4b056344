// SPDX-License-Identifier: Apache-2.0
//
// Spillway's own variables.
#include "launch/family.h"
#include "net/address.h"

namespace spillway::runtime {
namespace {

base::Result<Seat> spillway_seat(const base::Environment& environment) {
  return read_seat(environment, {"SPILLWAY_RANK", "SPILLWAY_WORLD_SIZE", "SPILLWAY_LOCAL_RANK",
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
base::Result<RendezvousPoint> spillway_meeting(const base::Environment& environment, const Seat&) {
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
                                      .seat = spillway_seat,
                                      .identity = spillway_identity,
                                      .meeting = spillway_meeting};

}  // namespace spillway::runtime
