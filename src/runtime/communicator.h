// SPDX-License-Identifier: Apache-2.0
//
// A rank's place in a group: the engine over the transport on real sockets, a thread that moves
// packets, and a few that calculate. Operations are handed in from any thread, end by themselves,
// and many may be under way at once.
//
//   auto communicator = Communicator::create(config);           // meets the other ranks
//   auto request = communicator->submit(operation);             // checks it, and returns at once
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
#include "runtime/launch/secret.h"
#include "runtime/launch/servers.h"
#include "runtime/rendezvous/rendezvous.h"
#include "runtime/request.h"
#include "runtime/service.h"
#include "transport/congestion_control.h"
#include "wire/key.h"

namespace spillway::runtime {

struct CommunicatorConfig {
  // Who this is. Without an id: what the environment says (launch.h).
  std::optional<UniqueId> id;
  Member member;
  // Parameter servers beside the ranks. Else: SPILLWAY_SERVERS, or none where there is an id.
  std::optional<std::uint16_t> servers;
  // Makes this one of the servers, not a rank.
  std::optional<ServerSeat> serves;
  // Of a Seat: whether all who will sit with it are on this machine. Neither id nor member then.
  std::optional<bool> seat_on_one_machine;

  std::string name = "world";  // in logs and metrics
  // What is not said here is in SPILLWAY_LINK_RATE and so on, or else known to the machine.
  std::optional<base::BitRate> link_rate;  // of this host's link
  std::optional<unsigned> mtu;             // of its interface
  std::optional<unsigned> trim_bytes;      // to which the network cuts frames; 0: it does not
  std::optional<unsigned> threads;         // that calculate
  std::optional<transport::ControllerKind> window;
  std::optional<double> trimmed_target;  // over-send: the share of packets that is to be cut
  Secret secret;                         // of the job; else as secret.h says
  // How long to wait for the others; else as timeouts.h says.
  std::optional<base::Duration> rendezvous_patience;
  std::optional<base::Duration> peer_timeout;
  base::Duration operation_timeout = base::seconds(300);
};

// What a job with changing members starts from: what the ranks of a communicator know, all alike.
struct JobRoots {
  wire::RunKey key{};  // nobody else has it
  bool on_one_machine = false;
};

class Communicator {
  class Impl;

 public:
  static base::Result<std::unique_ptr<Communicator>> create(const CommunicatorConfig& config);
  ~Communicator();

  // In two steps, for ranks that meet by other means (job/job.h): sockets first, at which others
  // may be told to find this one; then, when it is known who they are, the communicator. One
  // thread.
  class Seat {
   public:
    static base::Result<std::unique_ptr<Seat>> open(const CommunicatorConfig& config);
    ~Seat();

    // What the others must be shown: its rank's card.
    const Blob& handle() const { return handle_; }
    const net::SocketAddress& address() const;
    // As rank `rank` of `handles`, which is this seat's; all must be given the same, and a key that
    // nobody else has. Asks nobody, but for those of the same machine. The seat is used up.
    base::Result<std::unique_ptr<Communicator>> take(std::uint16_t rank,
                                                     std::span<const Blob> handles,
                                                     const wire::RunKey& key);

   private:
    explicit Seat(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
    Blob handle_;
  };

  std::uint16_t rank() const;
  std::uint16_t world() const;  // ranks of the application: without servers

  // The door: the operation is checked here, and nowhere below. `on_done`: see Request.
  base::Result<std::shared_ptr<Request>> submit(const collective::Operation& operation,
                                                Request::Callback on_done = {});

  // Ends everything here and, by notice, everywhere.
  base::Status abort(const std::string& why);
  // What broke the communicator; ok while nothing did.
  base::Status health() const;
  base::Result<JobRoots> job_roots() const;

  // At a parameter server: how serving ended, ok when all workers have left; nothing while it goes
  // on after `limit`.
  std::optional<base::Status> wait_served(std::chrono::milliseconds limit) const;
  ServerTotals server_totals() const;

 private:
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::runtime
