// SPDX-License-Identifier: Apache-2.0
//
// Everything a communicator needs to know before its first packet: who it is, how its packets look,
// how its driver is tuned. Explicit options go before SPILLWAY_* variables, those before what the
// machine says.
//
//   SPILLWAY_LINK_RATE   bits per second of this host's link      SPILLWAY_MTU   of its interface
//   SPILLWAY_TRIM_BYTES  to which the fabric cuts frames          SPILLWAY_PATHS source ports
//   SPILLWAY_THREADS     that do sums and coding                  SPILLWAY_SECRET  keyed tags
//   SPILLWAY_SERVERS     parameter servers of the job
//   SPILLWAY_PEER_TIMEOUT, SPILLWAY_RENDEZVOUS_TIMEOUT   timeouts.h
//
// prepare() reads the environment and the kernel's tables; it opens nothing.
#pragma once

#include "net/transport_driver.h"
#include "runtime/communicator.h"
#include "runtime/rank_card.h"
#include "runtime/timeouts.h"

namespace spillway::runtime {

struct CommunicatorSetup {
  collective::Group group;
  Launch launch;  // its rendezvous is unused where there is an id
  packetize::Job job;
  std::string secret;
  net::DriverConfig driver;
  base::Duration rendezvous_patience = kRendezvousPatience;
  bool is_loopback = false;
  unsigned mtu = 1500;
  unsigned trim_bytes = 0;
  std::optional<unsigned> threads;
};

base::Result<CommunicatorSetup> prepare(const CommunicatorOptions& options,
                                        const Environment& environment);

// The fabric all ranks use: the smallest MTU, and one trim size.
base::Result<packetize::Fabric> common_fabric(std::span<const RankCard> cards);

}  // namespace spillway::runtime
