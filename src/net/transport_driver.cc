// SPDX-License-Identifier: Apache-2.0
#include "net/transport_driver.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "net/path_mtu.h"
#include "net/send_pacer.h"
#include "net/system_call.h"
#include "net/task_queue.h"
#include "transport/datagram_port.h"
#include "wire/frame_overhead.h"

namespace spillway::net {
namespace {

// One turn of the loop receives and sends at most so much before it looks at the other.
constexpr int kReceiveCallsPerTurn = 4;
constexpr int kFlushesPerTurn = 4;
// Timeouts wait so many turns at most while more has arrived than was read.
constexpr unsigned kMaxTurnsBehind = 64;

bool is_marked(std::uint8_t tos) {
  return (tos & 3) == SPILLWAY_ECN_CE;
}

// What a datagram takes of a link: headers, preamble, check sequence and gap included.
base::Bytes wire_bytes(std::size_t datagram, const SocketAddress& address) {
  return base::bytes(static_cast<std::int64_t>(datagram) +
                     spillway_frame_overhead(address.is_ipv6()) + SPILLWAY_WIRE_OVERHEAD);
}

}  // namespace

base::Result<DriverConfig> driver_config_from(const base::Environment& environment) {
  const base::Result<Offloads> offloads = offloads_from(environment);
  const base::Result<std::int64_t> microseconds = environment.number("SPILLWAY_BUSY_POLL");
  if (!offloads.ok() || !microseconds.ok()) {
    return offloads.ok() ? microseconds.status() : offloads.status();
  }
  DriverConfig config;
  config.offloads = *offloads;
  config.busy_poll = base::microseconds(*microseconds);
  return config;
}

class TransportDriver::Loop {
 public:
  Loop(const DriverConfig& config, std::vector<UdpSocket> sockets, const wire::PacketAuth& auth,
       DriverListener& listener)
      : config_(config),
        listener_(listener),
        port_(config.endpoint, auth),
        sender_(std::move(sockets), config.offloads),
        receiver_(sender_.sockets()[0], config.offloads),
        pacer_(config.send_rate, config.send_burst) {}
  ~Loop() { stop_and_wait(); }

  void run();
  void stop() {
    stopped_ = true;
    tasks_.wake();
  }
  void stop_and_wait() {
    stop();
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  void start() {
    thread_ = std::thread([this] { run(); });
  }
  void post(Task task) { tasks_.push(std::move(task)); }

  base::Result<unsigned> add_peer(std::uint16_t rank, const SocketAddress& address);
  const SocketAddress& local() const { return sender_.sockets()[0].local(); }
  const Offloads& offloads() const { return sender_.offloads(); }
  DriverCounters counters() const {
    return {sender_.counters(), receiver_.counters(), port_.faults(), port_.endpoint().counters(),
            sleeps_};
  }

  std::vector<std::string> warnings;

 private:
  base::Instant now() const { return clock_.now(); }
  void turn();
  void run_tasks();
  bool receive();
  void run_timeouts();
  bool transmit();
  void gather(base::Instant now);
  void report_events();
  void wait();
  void sleep_until(base::Instant when);

  DriverConfig config_;
  DriverListener& listener_;
  base::MonotonicClock clock_;
  transport::DatagramPort port_;
  DatagramSender sender_;
  DatagramReceiver receiver_;
  SendPacer pacer_;
  TaskQueue<Task> tasks_;
  std::atomic<bool> stopped_{false};
  std::thread thread_;
  base::Instant told_;         // the latest time the endpoint was handed
  bool active_ = false;        // something was done in this turn
  bool blocked_ = false;       // a socket has no room
  unsigned turns_behind_ = 0;  // in a row that ended with more to read
  std::uint64_t sleeps_ = 0;
};

base::Result<unsigned> TransportDriver::Loop::add_peer(std::uint16_t rank,
                                                       const SocketAddress& address) {
  const base::Result<unsigned> mtu = path_mtu(local(), address);
  if (!mtu.ok()) {
    return mtu.status();
  }
  base::Result<unsigned> limit = datagram_limit(*mtu, address);
  if (!limit.ok()) {
    return limit;
  }
  if (base::Status status = port_.endpoint().add_peer(rank, now()); !status.ok()) {
    return status;
  }
  sender_.set_address(rank, address);
  return limit;
}

void TransportDriver::Loop::run() {
  // The kernel may otherwise wake us 50 us late, which is a lot to a pacer.
  ::prctl(PR_SET_TIMERSLACK, 1000);
  base::Instant last_active = now();
  while (!stopped_) {
    turn();
    if (active_) {
      last_active = now();
    } else if (now() - last_active >= config_.busy_poll && !stopped_) {
      wait();
    }
  }
}

void TransportDriver::Loop::turn() {
  active_ = false;
  run_tasks();
  active_ |= receive();
  run_timeouts();
  active_ |= transmit();
  report_events();
}

void TransportDriver::Loop::run_tasks() {
  if (!tasks_.woken()) {
    return;
  }
  for (const Task& task : tasks_.take()) {
    told_ = now();
    task(port_.endpoint(), told_);
    active_ = true;
  }
}

bool TransportDriver::Loop::receive() {
  const base::Instant read_at = now();
  const auto handle = [this](base::ByteView datagram, std::uint8_t tos, base::Instant arrived) {
    told_ = std::max(told_, arrived);  // the endpoint's time never runs back
    port_.on_datagram(datagram, is_marked(tos), told_);
  };
  const std::uint64_t before = receiver_.counters().datagrams;
  bool more = true;
  for (int i = 0; i < kReceiveCallsPerTurn && more; ++i) {
    more = receiver_.receive(read_at, handle);
  }
  turns_behind_ = more ? turns_behind_ + 1 : 0;
  return receiver_.counters().datagrams > before;
}

// Silence means something only once everything that arrived was read; but a flood stops no clock.
void TransportDriver::Loop::run_timeouts() {
  if (turns_behind_ % kMaxTurnsBehind != 0) {
    return;
  }
  const base::Instant at = now();
  if (port_.endpoint().next_timeout() <= at) {
    told_ = std::max(told_, at);
    port_.endpoint().on_timeout(told_);
    active_ = true;
  }
  if (listener_.next_timeout() <= at) {
    report_events();  // what happened before the clock ran out comes before it
    told_ = std::max(told_, at);
    listener_.on_timeout(port_.endpoint(), told_);
    active_ = true;
  }
}

// Sends what the endpoint has, as far as pacer and sockets let it. True if anything left.
bool TransportDriver::Loop::transmit() {
  bool any = false;
  for (int i = 0; i < kFlushesPerTurn; ++i) {
    if (sender_.empty() && pacer_.may_send(now())) {
      gather(now());
    }
    if (sender_.empty()) {
      blocked_ = false;
      break;
    }
    const std::uint64_t before = sender_.counters().datagrams;
    blocked_ = !sender_.flush();
    any |= sender_.counters().datagrams > before;
    if (blocked_) {
      break;
    }
  }
  return any;
}

void TransportDriver::Loop::gather(base::Instant at) {
  told_ = std::max(told_, at);
  while (sender_.has_room() && pacer_.may_send(at)) {
    transport::Route route;
    const std::size_t size = port_.poll_datagram(told_, sender_.room(), route);
    if (size == 0) {
      return;
    }
    sender_.commit(route, size);
    pacer_.sent(wire_bytes(size, config_.listen), at);
  }
}

void TransportDriver::Loop::report_events() {
  transport::Event event;
  while (port_.endpoint().poll_event(event)) {
    listener_.on_event(event, port_.endpoint(), told_);
    active_ = true;
  }
}

// Sleeps until something is due or comes.
void TransportDriver::Loop::wait() {
  const base::Instant due = std::min(port_.endpoint().next_timeout(), listener_.next_timeout());
  const bool pacer_holds = sender_.empty() && !pacer_.may_send(now());
  sleep_until(pacer_holds ? std::min(due, pacer_.next()) : due);
}

void TransportDriver::Loop::sleep_until(base::Instant when) {
  ++sleeps_;
  const timespec timeout = timespec_of(when - now());
  std::array<pollfd, 3> fds{{{tasks_.fd(), POLLIN, 0}, {sender_.sockets()[0].fd(), POLLIN, 0}, {}}};
  nfds_t count = 2;
  if (blocked_) {
    fds[count++] = {sender_.waiting_fd(), POLLOUT, 0};
  }
  ::ppoll(fds.data(), count, when == transport::kNever ? nullptr : &timeout, nullptr);
}

// ------------------------------------------------------------------ the face

TransportDriver::TransportDriver(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
TransportDriver::~TransportDriver() = default;

base::Result<std::unique_ptr<TransportDriver>> TransportDriver::open(const DriverConfig& config,
                                                                     const wire::PacketAuth& auth,
                                                                     DriverListener& listener) {
  DriverConfig settled = config;
  settled.offloads = available_offloads(config.offloads);
  std::vector<UdpSocket> sockets;
  std::vector<std::string> warnings;
  SocketAddress address = config.listen;
  for (unsigned path = 0; path < std::max<unsigned>(config.endpoint.exchange.paths, 1); ++path) {
    base::Result<UdpSocket> socket = UdpSocket::open(address);
    if (!socket.ok()) {
      return socket.status();
    }
    sockets.push_back(std::move(socket).value());
    address = address.with_port(0);
  }
  sockets[0].tell_about_arrivals(settled.offloads.gro);
  if (const auto warning = sockets[0].size_buffers(config.socket_buffer_bytes)) {
    warnings.push_back(*warning);
  }
  auto loop = std::make_unique<Loop>(settled, std::move(sockets), auth, listener);
  loop->warnings = std::move(warnings);
  return std::unique_ptr<TransportDriver>(new TransportDriver(std::move(loop)));
}

const SocketAddress& TransportDriver::local() const {
  return loop_->local();
}
const std::vector<std::string>& TransportDriver::warnings() const {
  return loop_->warnings;
}
const Offloads& TransportDriver::offloads() const {
  return loop_->offloads();
}
base::Result<unsigned> TransportDriver::add_peer(std::uint16_t rank, const SocketAddress& address) {
  return loop_->add_peer(rank, address);
}
void TransportDriver::post(Task task) {
  loop_->post(std::move(task));
}
void TransportDriver::start() {
  loop_->start();
}
void TransportDriver::run() {
  loop_->run();
}
void TransportDriver::stop() {
  loop_->stop();
}
void TransportDriver::stop_and_wait() {
  loop_->stop_and_wait();
}
DriverCounters TransportDriver::counters() const {
  return loop_->counters();
}

}  // namespace spillway::net
