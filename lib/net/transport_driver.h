// SPDX-License-Identifier: Apache-2.0
//
// The transport on real sockets: one rank's endpoint, its sockets, and the loop that moves packets
// between them. The loop sleeps when nothing is due.
//
// The driver also reads ICMP errors about datagrams it sent. A peer whose port refuses one of ours
// is probed at once, and dead if it does not answer soon. Other errors are counted and change
// nothing (sockets.h). Datagrams from hosts of no peer are dropped unread.
//
// If memory runs out or another exception occurs on the loop's thread, on_broken() is called. The
// loop goes on, and its owner must end what was under way.
//
// Carrier: UDP; TCP (stream_carrier.h); or UDP, with TCP for each peer that only TCP reaches, and
// after open_streams() for messages that are to take it. Nothing is paced over TCP. Both use the
// same port number.
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

#include <poll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "net/address.h"
#include "net/datagrams.h"
#include "net/sockets.h"
#include "net/stream_carrier.h"
#include "net/system_call.h"
#include "transport/datagram_port.h"
#include "transport/endpoint.h"

namespace spillway::net {

struct DriverConfig {
  transport::EndpointConfig endpoint;
  SocketAddress listen;
  Offloads offloads;
  std::size_t socket_buffer_bytes = 4 * 1024 * 1024;
  base::BitRate send_rate{};                        // this host's link rate; zero: not paced
  base::Bytes send_burst = base::bytes(64 * 1024);  // of data may leave at once if paced
  // Includes the loop's thread; at most kMaxIoThreads. Unset: the loop's only, besides
  // help_when_idle().
  std::optional<unsigned> io_threads{};
  Carrier carrier = Carrier::kUdp;
};

// Threads that move packets: the loop's, one that writes and sends for it, one that reads ahead.
inline constexpr unsigned kMaxIoThreads = 3;

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

class TransportDriver final : private DatagramWriter, private transport::SourceReader {
 public:
  using Task = std::function<void(transport::Endpoint&, base::Instant)>;

  // `listener` must outlive the driver.
  static base::Result<std::unique_ptr<TransportDriver>> open(const DriverConfig& config,
                                                             DriverListener& listener);
  ~TransportDriver() override { stop_and_wait(); }
  TransportDriver(const TransportDriver&) = delete;
  TransportDriver& operator=(const TransportDriver&) = delete;

  const SocketAddress& local() const { return sender_.sockets()[0].local(); }
  // The kernel's refusals and their remedies, one sentence each.
  const std::vector<std::string>& warnings() const { return warnings_; }
  const Offloads& offloads() const { return sender_.offloads(); }

  // Forgets all peers and messages and starts a new epoch: transport::DatagramPort::begin_epoch().
  void begin_epoch(const transport::Epoch& epoch);
  // Returns the maximum packet size in bytes: over UDP the payload that fits the MTU (address.h),
  // over TCP SPILLWAY_MAX_PACKET.
  base::Result<unsigned> add_peer(std::uint16_t rank, const SocketAddress& address);
  // Also accepts a peer's datagrams from this address.
  void add_source(const SocketAddress& address);

  // Opens streams to all peers, beside UDP. Endpoint::has_stream() says which are open: messages
  // may be put on those. Does nothing where the carrier is UDP. Call it before the loop runs or on
  // its thread.
  void open_streams();

  // Call before the loop runs. Does nothing if io_threads is set.
  base::Status help_when_idle();

  void post(Task task) { tasks_.push(std::move(task)); }  // any thread
  base::Status start();                                   // fails if no thread can be made
  void run();                                             // until stop()
  void stop();                                            // any thread
  void stop_and_wait();  // also waits for start()'s thread; not on the loop's thread

  // On the loop's thread, or while the loop does not run.
  DriverCounters counters() const;

 private:
  TransportDriver(const DriverConfig& config, std::vector<UdpSocket> sockets,
                  DriverListener& listener);
  static base::Result<std::unique_ptr<TransportDriver>> open_udp(const DriverConfig& config,
                                                                 DriverListener& listener);
  // Also listens for TCP at the same port. Call before anything else.
  base::Status listen_for_streams();
  transport::EndpointConfig endpoint_config();
  base::Status begin_helpers();
  base::Status begin_to_send_with_helper();
  base::Instant now() const { return clock_.now(); }

  // ---- a turn of the loop
  void turn();
  void turn_and_wait();
  void note_broken(const std::exception& thrown);
  void tell_broken();
  void run_tasks();
  bool receive();
  void look_at_errors();
  void on_error(const SocketError& error);
  void run_timeouts();
  void look_at_streams();
  bool transmit();
  bool take_back();
  void tell_unsent();
  void gather(base::Instant at);
  void report_events();
  void wait();
  void sleep_until(base::Instant when);

  // ---- for the sender and its helper
  std::size_t write_data(const transport::Route& route, const wire::DataStamp& stamp,
                         transport::PayloadSource& source,
                         base::MutableByteView out) const override {
    return port_.write_data(route, stamp, source, out);
  }
  void let_go(const wire::MessageId& id, std::uint16_t to) override {
    sender_.wait_until_written(id, to);
  }

  DriverConfig config_;
  DriverListener& listener_;
  std::vector<std::string> warnings_;
  base::MonotonicClock clock_;
  transport::DatagramPort port_;
  DatagramSender sender_;
  DatagramReceiver receiver_;
  SendPacer pacer_;
  std::unique_ptr<StreamPaths> streams_;  // null: UDP alone
  transport::Transmission transmission_;
  TaskQueue<Task> tasks_;
  std::deque<Task> due_tasks_;                  // taken from the queue
  std::map<std::string, std::uint16_t> ranks_;  // by address
  std::vector<pollfd> polled_;
  ErrorCounters errors_;
  base::Instant errors_due_;  // when to look for them anyway
  bool has_errors_ = false;
  std::optional<base::Status> broken_;  // to be reported to the listener
  // Allocated while there is memory.
  const base::Status out_of_memory_{
      base::StatusCode::kLimitExceeded,
      "there is no memory left for the thread that moves packets; use smaller tensors or fewer at "
      "once, or raise the limit (ulimit -v, or the container's)"};
  bool is_out_of_memory_ = false;  // to be reported, like broken_
  std::atomic<bool> stopped_{false};
  std::thread thread_;
  base::Instant told_;                // latest time passed to the endpoint; it never runs back
  bool asks_for_processors_ = false;  // ask the listener before using a helper
  bool active_ = false;               // this turn did something
  bool blocked_ = false;              // a socket has no room
  unsigned turns_behind_ = 0;         // consecutive turns that ended with more to read
  std::uint64_t sleeps_ = 0;
};

}  // namespace spillway::net
