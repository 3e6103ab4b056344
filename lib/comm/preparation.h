// SPDX-License-Identifier: Apache-2.0
//
// Everything a communicator needs to know before its first packet: its identity, its packet format
// and its driver's settings. Explicit options win over SPILLWAY_* variables, and those over what
// the machine reports.
//
//   SPILLWAY_LINK_RATE           bits per second of this host's link
//   SPILLWAY_MTU                 of the interface, in bytes
//   SPILLWAY_TRIM_BYTES          size of a trimmed frame
//   SPILLWAY_PATHS               number of source ports
//   SPILLWAY_CARRIER             UDP, TCP, or UDP with fallback to TCP (net/carrier.h)
//   SPILLWAY_TCP_CONGESTION      congestion control of TCP
//   SPILLWAY_WINDOW              congestion controller
//   SPILLWAY_TRIMMED_TARGET      over-send: share of packets to be trimmed
//   SPILLWAY_ALGORITHM           of operations that name none
//   SPILLWAY_RACK_RANKS          ranks under one switch
//   SPILLWAY_SHARES              how much of a tensor each rank owns
//   SPILLWAY_THREADS             compute threads, for sums and coding
//   SPILLWAY_SERVERS             number of parameter servers
//   SPILLWAY_SECRET              the job's secret (secret.h)
//   SPILLWAY_SECRET_FILE         path of the secret
//   SPILLWAY_ENCRYPT             encrypts payloads; needs a secret
//   SPILLWAY_PEER_TIMEOUT        timeouts.h
//   SPILLWAY_RENDEZVOUS_TIMEOUT  timeouts.h
//
// prepare() reads the environment, the secret's file and kernel files; it leaves nothing open.
#pragma once

#include "base/environment.h"
#include "comm/communicator.h"
#include "launch/secret.h"
#include "launch/timeouts.h"
#include "net/transport_driver.h"
#include "observe/operation_observer.h"

namespace spillway::runtime {

struct Preparation {
  collective::Group group;
  Launch launch;         // its rendezvous is unused if there is an id
  Secret secret;         // empty if the job has none
  bool encrypt = false;  // encrypts payloads; requires a secret
  Identity identity;
  ObserverConfig observer;
  net::DriverConfig driver;
  base::Duration rendezvous_patience{};
  bool is_loopback = false;
  bool local_copy = true;  // ranks of one machine share memory
  // Defaults for operations that name none (SPILLWAY_ALGORITHM, SPILLWAY_RACK_RANKS,
  // SPILLWAY_SHARES, SPILLWAY_CHUNKS).
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

// Completes a seat's preparation once its rank is known.
base::Status take_rank(const Member& member, const base::Environment& environment,
                       Preparation& preparation);

}  // namespace spillway::runtime
