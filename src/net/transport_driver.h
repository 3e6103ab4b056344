// SPDX-License-Identifier: Apache-2.0
//
// The transport on real sockets: one rank's endpoint, its sockets, and the loop that moves packets
// between them. The loop sleeps when nothing is due; busy_poll has it look again for a while first.
//
// What the network says about datagrams that left is read as well: a peer whose port refuses one
// of ours is asked at once, and dead if it does not answer soon; everything else is counted and
// changes nothing (error_queue.h). Datagrams from hosts that are no peer's are dropped unread.
//
// Memory that runs out, or any other exception on the loop's thread, ends in on_broken(): the loop
// lives on, and whoever owns it ends what was under way.
//
// Carrier: UDP; TCP (stream_carrier.h); or UDP, and TCP with each peer that it gets through to
// while datagrams do not. Over TCP nothing is paced. Both use the same port number.
//
// Sockets: one has the address that peers send to; its port and those of paths - 1 further sockets
// are the source ports that packets are sprayed over, a GSO run per path at a time.
//
// Threads: everything happens on the loop's thread, which is that of run(), or one of its own after
// start(). Other threads hand in work with post(); listeners are called on the loop's thread, as is
// posted work, and may use the endpoint they are given. Epochs begin and peers are added before the
// loop runs, or on its thread: sockets outlive epochs. Where io_threads asks for them, up to two
// helpers work for the loop meanwhile: one writes datagrams of data and sends them, one reads
// ahead. Where nothing was said, help_when_idle() has one send while the listener leaves processors
// to it. They see sockets and buffers, and what messages are written from (PayloadSource): that
// may go, on the loop's thread, once a SendReport was told or the message withdrawn.
//
//   auto driver = TransportDriver::open(config, listener);
//   driver->begin_epoch(epoch);  // whose keys its packets are sealed with
//   driver->add_peer(1, address);
//   driver->start();
//   driver->post([options](Endpoint& endpoint, Instant now) { endpoint.send(options, now); });
//
// Limits: as the endpoint's; datagrams that wait to leave are bounded by DatagramSender's buffer.
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
  base::BitRate send_rate{};                        // of this host's link; zero: not paced
  base::Bytes send_burst = base::bytes(64 * 1024);  // that may leave at once where it is paced
  base::Duration busy_poll{};
  // The loop's included, up to kMaxIoThreads; nothing: one, and who helps when it is idle.
  std::optional<unsigned> io_threads{};
  Carrier carrier = Carrier::kUdp;
  TcpOptions tcp;
};

// What moves packets: the loop's thread, one that writes and sends for it, one that reads ahead.
inline constexpr unsigned kMaxIoThreads = 3;

// Offloads and busy polling as SPILLWAY_GSO, SPILLWAY_GRO, SPILLWAY_BATCHING and
// SPILLWAY_BUSY_POLL (microseconds) and SPILLWAY_IO_THREADS say.
base::Result<DriverConfig> driver_config_from(const base::Environment& environment);

struct DriverCounters {
  SendCounters sent;
  ReceiveCounters received;
  ErrorCounters errors;
  StreamCounters streams;  // whose packets count as datagrams above, too
  std::array<std::uint64_t, wire::kPacketFaults> faults{};  // datagrams refused, by their fault
  transport::EndpointCounters endpoint;
  std::uint64_t sleeps = 0;
};

class DriverListener {
 public:
  virtual ~DriverListener() = default;
  virtual void on_event(const transport::Event& event, transport::Endpoint& endpoint,
                        base::Instant now) = 0;
  // For owners with timeouts of their own. By then they have been told of all events.
  virtual base::Instant next_timeout() const { return transport::kNever; }
  virtual void on_timeout(transport::Endpoint& /*endpoint*/, base::Instant /*now*/) {}
  // Datagrams do not get through between this rank and another, but TCP does: packets go over that
  // from now on.
  virtual void on_stream_used(std::uint16_t /*rank*/) {}
  // Whether processors have time for a helper (help_when_idle()).
  virtual bool leaves_processors() const { return true; }
  // Something was thrown on the loop's thread, by the listener, posted work or below; what it was
  // about to do is half done. Owners that do not know how to go on end the process.
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
  // What the kernel would not give and what to do about it, sentence by sentence.
  const std::vector<std::string>& warnings() const;
  const Offloads& offloads() const;

  // Forgets all peers and messages, and takes up others: transport::DatagramPort::begin_epoch().
  void begin_epoch(const transport::Epoch& epoch);
  // How many bytes a packet to the peer may have: of UDP payload as many as fit the path.
  base::Result<unsigned> add_peer(std::uint16_t rank, const SocketAddress& address);
  // A peer's datagrams may come from there, too.
  void add_source(const SocketAddress& address);

  // Before the loop runs. Nothing where io_threads was said.
  base::Status help_when_idle();

  void post(Task task);  // any thread
  base::Status start();  // fails where no thread can be made
  void run();            // until stop()
  void stop();           // any thread
  void stop_and_wait();  // and for the thread of start() to end; not on the loop's thread

  // On the loop's thread, or when it does not run.
  DriverCounters counters() const;

 private:
  class Loop;
  explicit TransportDriver(std::unique_ptr<Loop> loop);
  static base::Result<std::unique_ptr<Loop>> open_loop(const DriverConfig& config,
                                                       DriverListener& listener);
  std::unique_ptr<Loop> loop_;
};

}  // namespace spillway::net
