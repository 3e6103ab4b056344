// SPDX-License-Identifier: Apache-2.0
//
// A rank's place in a group: the engine over the transport on real sockets, a thread that moves
// packets, and a few that calculate. Operations are handed in from any thread, end by themselves,
// and many may be under way at once.
//
//   auto communicator = Communicator::create(options);          // meets the other ranks
//   auto request = communicator->submit(operation);
//   request->wait();
//
// When a rank dies, hangs, leaves early or calls something else, every operation here ends with an
// error that names it, in less than two seconds; the communicator is of no use afterwards.
//
// Threads: everything public may be called from any thread but after fork(): a child has neither
// the threads nor the place in the group, and is refused. Destroying it ends what is under way with
// an error, here and, by notice, at the other ranks; a communicator that is done stays for a moment
// to answer those who are not.
//
// A job may have parameter servers: the application's ranks are its workers, rank() and world()
// speak of them alone, and all-reduces go through the servers. A server's process has a
// communicator too, which takes no operations: it does what the workers call until they have left
// (wait_served).
//
// Limits: EngineLimits and EndpointLimits. Memory: docs/operating.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "collective/engine.h"
#include "runtime/launch_servers.h"
#include "runtime/operation_request.h"
#include "runtime/rendezvous.h"
#include "runtime/server_totals.h"

namespace spillway::runtime {

struct CommunicatorOptions {
  // Who this is. Without an id: what the environment says (launch.h).
  std::optional<UniqueId> id;
  Member member;
  // Parameter servers beside the ranks. Else: SPILLWAY_SERVERS, or none where there is an id.
  std::optional<std::uint16_t> servers;
  // Makes this one of the servers, not a rank.
  std::optional<ServerSeat> serves;

  std::string name = "world";  // in logs and metrics
  std::optional<base::BitRate>
      link_rate;  // of this host's link; else SPILLWAY_LINK_RATE, else asked of the kernel
  std::optional<unsigned> mtu;         // else SPILLWAY_MTU, else the interface's
  std::optional<unsigned> trim_bytes;  // else SPILLWAY_TRIM_BYTES, else 0: the fabric does not trim
  std::optional<unsigned> threads;     // else SPILLWAY_THREADS, else by the machine
  std::string secret;                  // at least 16 bytes: packets carry keyed tags
  // How long to wait for the others; else as timeouts.h says.
  std::optional<base::Duration> rendezvous_patience;
  std::optional<base::Duration> peer_timeout;
  base::Duration operation_timeout = base::seconds(300);
};

struct OperationOptions {
  collective::Operation operation;
  const void* input = nullptr;
  void* output = nullptr;
  std::uint8_t priority = 3;
  OperationRequest::Callback on_done{};
};

class Communicator {
 public:
  static base::Result<std::unique_ptr<Communicator>> create(const CommunicatorOptions& options);
  ~Communicator();

  std::uint16_t rank() const;
  std::uint16_t world() const;  // ranks of the application: without servers

  base::Result<std::shared_ptr<OperationRequest>> submit(const OperationOptions& options);

  // Ends everything here and, by notice, everywhere.
  base::Status abort(const std::string& why);
  // What broke the communicator; ok while nothing did.
  base::Status health() const;

  // At a parameter server: how serving ended, ok when all workers have left; nothing while it goes
  // on after `limit`.
  std::optional<base::Status> wait_served(std::chrono::milliseconds limit) const;
  ServerTotals server_totals() const;

 private:
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::runtime
