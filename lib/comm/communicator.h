// SPDX-License-Identifier: Apache-2.0
//
// A rank's membership in a group: the engine over the transport on real sockets, one thread that
// moves packets, and a few compute threads. Any thread may submit operations. Many may be in flight
// at once, and they progress without the caller.
//
//   auto communicator = Communicator::create(config);           // meets the other ranks
//   auto request = communicator->submit(operation);             // checks it, and returns at once
//   request->wait();
//
// If a rank dies, hangs, leaves early or calls a different operation, every operation here fails in
// less than two seconds and names the rank. The communicator is unusable afterwards.
//
// Threads: any thread may call the public functions. A child of fork() has neither the threads nor
// the membership, and its calls are refused. The destructor ends pending operations with an error,
// here and (by notice) at the other ranks. A finished communicator stays for a moment to answer
// peers that are not done.
//
// A job may have parameter servers. The application's ranks are then its workers: rank() and
// world() count only them, and all-reduces go through the servers. A server's process has a
// communicator too. It takes no operations: it serves the workers until all have left
// (wait_served).
//
// Limits: EngineLimits and EndpointLimits.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "collective/engine.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/request.h"
#include "comm/service.h"
#include "launch/secret.h"
#include "launch/servers.h"
#include "transport/congestion_control.h"
#include "wire/key.h"

namespace spillway::runtime {

struct CommunicatorConfig {
  // The identity of this rank. Without an id, the environment decides (launch.h).
  std::optional<UniqueId> id;
  Member member;
  // Number of parameter servers. Unset: SPILLWAY_SERVERS, or none if there is an id.
  std::optional<std::uint16_t> servers;
  // Set if this process is a parameter server, not a rank.
  std::optional<ServerSeat> serves;
  // Set only for a Seat: true if all ranks of its communicator run on this host. `id` and `member`
  // are then unused.
  std::optional<bool> seat_on_one_machine;

  std::string name = "world";  // in logs and metrics
  // Unset options come from SPILLWAY_LINK_RATE and similar variables, then from the machine.
  std::optional<base::BitRate> link_rate;  // of this host's link
  std::optional<unsigned> mtu;             // of the interface
  std::optional<unsigned> trim_bytes;      // size of a trimmed frame; 0: no trimming
  std::optional<unsigned> threads;         // compute threads
  std::optional<transport::ControllerKind> window;
  std::optional<double> trimmed_target;  // over-send: share of packets to be trimmed
  Secret secret;                         // of the job; empty: as secret.h says
  // How long to wait for the other ranks. Unset: as timeouts.h says.
  std::optional<base::Duration> rendezvous_patience;
  std::optional<base::Duration> peer_timeout;
  base::Duration operation_timeout = base::seconds(300);
};

// What an elastic job starts from. All ranks of a communicator derive the same values.
struct JobRoots {
  wire::RunKey key{};  // known only to these ranks
  bool on_one_machine = false;
};

class Communicator {
  class Impl;

 public:
  static base::Result<std::unique_ptr<Communicator>> create(const CommunicatorConfig& config);
  ~Communicator();

  // Creation in two steps, for ranks that do not meet at a rendezvous (job/job.h). open() binds the
  // sockets, so that peers can be told the address. take() makes the communicator once all ranks
  // are known. One thread.
  class Seat {
   public:
    static base::Result<std::unique_ptr<Seat>> open(const CommunicatorConfig& config);
    ~Seat();

    // This rank's card, which all other ranks need.
    const Blob& handle() const { return handle_; }
    const net::SocketAddress& address() const;
    // Makes the communicator as rank `rank`; handles[rank] must be this seat's. All ranks must pass
    // the same handles and a key known to no one else. Waits for no ranks except those of this
    // machine. The seat is used up.
    base::Result<std::unique_ptr<Communicator>> take(std::uint16_t rank,
                                                     std::span<const Blob> handles,
                                                     const wire::RunKey& key);

   private:
    explicit Seat(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
    Blob handle_;
  };

  std::uint16_t rank() const;
  std::uint16_t world() const;  // ranks of the application, without servers

  // The only place where the operation is checked. `on_done`: see Request.
  base::Result<std::shared_ptr<Request>> submit(const collective::Operation& operation,
                                                Request::Callback on_done = {});

  // Ends all operations here and, by notice, at the other ranks.
  base::Status abort(const std::string& why);
  // The error that broke the communicator; ok if it is usable.
  base::Status health() const;
  base::Result<JobRoots> job_roots() const;

  // For a parameter server: how the service ended (ok once all workers have left), or nullopt if it
  // still runs after `limit`.
  std::optional<base::Status> wait_served(std::chrono::milliseconds limit) const;
  ServerTotals server_totals() const;

 private:
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::runtime
