// SPDX-License-Identifier: Apache-2.0
//
// The transport on real sockets: one rank's endpoint, its sockets, and the loop that moves packets
// between them. The loop sleeps when nothing is due; busy_poll makes it poll for a while first.
//
// The driver also reads ICMP errors about datagrams it sent. A peer whose port refuses one of ours
// is probed at once, and dead if it does not answer soon. Other errors are counted and change
// nothing (error_queue.h). Datagrams from hosts of no peer are dropped unread.
//
// If memory runs out or another exception occurs on the loop's thread, on_broken() is called. The
// loop goes on, and its owner must end what was under way.
//
// Carrier: UDP; TCP (stream_carrier.h); or UDP, with TCP for each peer that only TCP reaches.
// Nothing is paced over TCP. Both use the same port number.
//
// Sockets: one has the address that peers send to. Its port and those of paths - 1 further sockets
// are the source ports over which packets are sprayed, one GSO run per path at a time.
//
// Threads: everything happens on the loop's thread, which is run()'s caller, or the driver's own
// thread after start(). Other threads hand in work with post(). Posted work and listeners run on
// the loop's thread and may use the endpoint that they are given. Call begin_epoch() and add_peer()
// before the loop runs or on its thread; sockets outlive epochs. If io_threads asks for them, up to
// two helpers work for the loop: one writes and sends data datagrams, one reads ahead. If
// io_threads is unset, help_when_idle() adds a sending helper, used while the listener leaves
// processors to it. Helpers touch sockets, buffers and PayloadSources. A PayloadSource may be
// destroyed, on the loop's thread, once its SendReport was delivered or the message withdrawn.
//
//   auto driver = TransportDriver::open(config, listener);
//   driver->begin_epoch(epoch);  // its keys seal the packets
//   driver->add_peer(1, address);
//   driver->start();
//   driver->post([options](Endpoint& endpoint, Instant now) { endpoint.send(options, now); });
//
// Limits: the endpoint's; DatagramSender's buffer bounds datagrams that wait to leave.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/address.h"
#include "net/carrier.h"
#include "net/datagram_receiver.h"
#include "net/datagram_sender.h"
#include "net/error_queue.h"
#include "net/stream_carrier.h"
#include "net/tcp_socket.h"
#include "net/udp_socket.h"
#include "transport/endpoint.h"
#include "transport/session.h"

namespace spillway::net {

struct DriverConfig {
  transport::EndpointConfig endpoint;
  SocketAddress listen;
  Offloads offloads;
  std::size_t socket_buffer_bytes = 4 * 1024 * 1024;
  base::BitRate send_rate{};                        // this host's link rate; zero: not paced
  base::Bytes send_burst = base::bytes(64 * 1024);  // may leave at once if paced
  base::Duration busy_poll{};
  // Includes the loop's thread; at most kMaxIoThreads. Unset: the loop's only, besides
  // help_when_idle().
  std::optional<unsigned> io_threads{};
  Carrier carrier = Carrier::kUdp;
  TcpOptions tcp;
};

// Threads that move packets: the loop's, one that writes and sends for it, one that reads ahead.
inline constexpr unsigned kMaxIoThreads = 3;

// From SPILLWAY_GSO, SPILLWAY_GRO, SPILLWAY_BATCHING, SPILLWAY_BUSY_POLL (microseconds) and
// SPILLWAY_IO_THREADS.
base::Result<DriverConfig> driver_config_from(const base::Environment& environment);

struct DriverCounters {
  SendCounters sent;
  ReceiveCounters received;
  ErrorCounters errors;
  StreamCounters streams;  // included in `sent` and `received`, too
  std::array<std::uint64_t, wire::kPacketFaults> faults{};  // refused datagrams by fault
  transport::EndpointCounters endpoint;
  std::uint64_t sleeps = 0;
};

class DriverListener {
 public:
  virtual ~DriverListener() = default;
  virtual void on_event(const transport::Event& event, transport::Endpoint& endpoint,
                        base::Instant now) = 0;
  // Timeouts of the listener's own. All events are delivered before on_timeout() is called.
  virtual base::Instant next_timeout() const { return transport::kNever; }
  virtual void on_timeout(transport::Endpoint& /*endpoint*/, base::Instant /*now*/) {}
  // UDP does not reach this rank, but TCP does: packets to it go over TCP from now on.
  virtual void on_stream_used(std::uint16_t /*rank*/) {}
  // Whether idle processors are left for a helper (help_when_idle()).
  virtual bool leaves_processors() const { return true; }
  // The listener, posted work or code below threw on the loop's thread; the interrupted action is
  // half done. Owners that cannot recover end the process.
  virtual void on_broken(const base::Status& cause, transport::Endpoint& endpoint,
                         base::Instant now);
};

class TransportDriver {
 public:
  using Task = std::function<void(transport::Endpoint&, base::Instant)>;

  // `listener` must outlive the driver.
  static base::Result<std::unique_ptr<TransportDriver>> open(const DriverConfig& config,
                                                             DriverListener& listener);
  ~TransportDriver();  // stops the loop

  const SocketAddress& local() const;
  // What the kernel refused and what to do about it, one sentence each.
  const std::vector<std::string>& warnings() const;
  const Offloads& offloads() const;

  // Forgets all peers and messages and starts a new epoch: transport::DatagramPort::begin_epoch().
  void begin_epoch(const transport::Epoch& epoch);
  // Returns the maximum packet size in bytes: over UDP the payload that fits the MTU (path_mtu.h),
  // over TCP SPILLWAY_MAX_PACKET.
  base::Result<unsigned> add_peer(std::uint16_t rank, const SocketAddress& address);
  // Also accepts a peer's datagrams from this address.
  void add_source(const SocketAddress& address);

  // Call before the loop runs. Does nothing if io_threads is set.
  base::Status help_when_idle();

  void post(Task task);  // any thread
  base::Status start();  // fails if no thread can be made
  void run();            // until stop()
  void stop();           // any thread
  void stop_and_wait();  // also waits for start()'s thread; not on the loop's thread

  // On the loop's thread, or while the loop does not run.
  DriverCounters counters() const;

 private:
  class Loop;
  explicit TransportDriver(std::unique_ptr<Loop> loop);
  static base::Result<std::unique_ptr<Loop>> open_loop(const DriverConfig& config,
                                                       DriverListener& listener);
  std::unique_ptr<Loop> loop_;
};

}  // namespace spillway::net
