// SPDX-License-Identifier: Apache-2.0
//
// Everything a communicator needs to know before its first packet: who it is, how its packets look,
// how its driver is tuned. Explicit options go before SPILLWAY_* variables, those before what the
// machine says.
//
//   SPILLWAY_LINK_RATE           bits per second of this host's link
//   SPILLWAY_MTU                 of its interface
//   SPILLWAY_TRIM_BYTES          to which the network cuts frames
//   SPILLWAY_PATHS               source ports
//   SPILLWAY_CARRIER             UDP, TCP or what gets through (net/carrier.h)
//   SPILLWAY_TCP_CONGESTION      control, where that is TCP
//   SPILLWAY_WINDOW              which controller
//   SPILLWAY_TRIMMED_TARGET      over-send
//   SPILLWAY_ALGORITHM           of operations that do not say
//   SPILLWAY_RACK_RANKS          ranks under one switch
//   SPILLWAY_SHARES              who adds up how much
//   SPILLWAY_THREADS             that do sums and coding
//   SPILLWAY_SERVERS             parameter servers of the job
//   SPILLWAY_SECRET              the job's (secret.h)
//   SPILLWAY_SECRET_FILE         where that is
//   SPILLWAY_ENCRYPT             needs one
//   SPILLWAY_PEER_TIMEOUT        timeouts.h
//   SPILLWAY_RENDEZVOUS_TIMEOUT  timeouts.h
//
// prepare() reads the environment, the secret's file and the kernel's tables; it leaves nothing
// open.
#pragma once

#include "base/environment.h"
#include "net/transport_driver.h"
#include "runtime/communicator.h"
#include "runtime/launch/secret.h"
#include "runtime/launch/timeouts.h"
#include "runtime/observe/operation_observer.h"

namespace spillway::runtime {

struct Preparation {
  collective::Group group;
  Launch launch;         // its rendezvous is unused where there is an id
  Secret secret;         // empty: none
  bool encrypt = false;  // payloads, too; only with a secret
  Identity identity;
  ObserverConfig observer;
  net::DriverConfig driver;
  base::Duration rendezvous_patience{};
  bool is_loopback = false;
  bool local_copy = true;  // ranks of one machine share memory
  // What operations do that do not say (SPILLWAY_ALGORITHM, SPILLWAY_RACK_RANKS, SPILLWAY_SHARES,
  // SPILLWAY_CHUNKS).
  collective::Algorithm algorithm = collective::Algorithm::kAutomatic;
  std::uint16_t rack_ranks = 0;
  collective::ShareRule shares = collective::ShareRule::kAutomatic;
  collective::ChunkRule chunks = collective::ChunkRule::kStriped;
  unsigned mtu = 1500;
  unsigned trim_bytes = 0;
  std::optional<unsigned> threads;
};

base::Result<Preparation> prepare(const CommunicatorConfig& config,
                                  const base::Environment& environment);

// Of a seat, when it is known which rank sits there.
base::Status take_rank(const Member& member, const base::Environment& environment,
                       Preparation& preparation);

}  // namespace spillway::runtime
