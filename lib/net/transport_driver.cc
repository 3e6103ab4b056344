// SPDX-License-Identifier: Apache-2.0
#include "net/transport_driver.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>
#include <utility>
#include <variant>

#include "net/address.h"
#include "net/system_call.h"
#include "wire/packet.h"

namespace spillway::net {
namespace {

// Limits per turn, so that neither receiving nor sending starves the other.
constexpr int kReceiveCallsPerTurn = 4;
constexpr int kFlushesPerTurn = 4;
// Timeouts wait at most this many turns while arrivals remain unread.
constexpr unsigned kMaxTurnsBehind = 64;
// Bytes written to streams before they are handed to the kernel.
constexpr std::size_t kStreamBytesPerGather = 1024 * 1024;
// Number of ports tried until one is free for both UDP and TCP.
constexpr int kPortsTried = 16;
// How often a loop that does not sleep looks at its sockets' errors.
constexpr base::Duration kErrorsLookedAtAfter = base::milliseconds(10);
// Pause after an exception; a resource that ran out may become available.
constexpr std::chrono::milliseconds kPauseAfterException{10};

bool is_marked(std::uint8_t tos) {
  return (tos & 3) == SPILLWAY_ECN_CE;
}

// Bytes that a datagram takes on a link: headers, preamble, check sequence and gap included.
base::Bytes wire_bytes(std::size_t datagram, const SocketAddress& address) {
  return base::bytes(static_cast<std::int64_t>(datagram) +
                     spillway_frame_overhead(address.is_ipv6()) + SPILLWAY_WIRE_OVERHEAD);
}

}  // namespace

void DriverListener::on_broken(const base::Status& cause, transport::Endpoint& /*endpoint*/,
                               base::Instant /*now*/) {
  fmt::print(stderr, "spillway: {}\n", cause.message());
  std::abort();
}

// ------------------------------------------------------------------ opening

TransportDriver::TransportDriver(const DriverConfig& config, std::vector<UdpSocket> sockets,
                                 DriverListener& listener)
    : config_(config),
      listener_(listener),
      port_(endpoint_config(), {}),
      sender_(std::move(sockets), config.offloads),
      receiver_(sender_.sockets()[0], config.offloads),
      pacer_(config.send_rate, config.send_burst) {
  polled_.push_back({tasks_.fd(), POLLIN, 0});
  for (const UdpSocket& socket : sender_.sockets()) {
    polled_.push_back({socket.fd(), 0, 0});  // for its errors
  }
  polled_[1].events = POLLIN;
  polled_.push_back({});  // for a socket without room
}

transport::EndpointConfig TransportDriver::endpoint_config() {
  transport::EndpointConfig endpoint = config_.endpoint;
  endpoint.reader = this;
  return endpoint;
}

base::Result<std::unique_ptr<TransportDriver>> TransportDriver::open(const DriverConfig& config,
                                                                     DriverListener& listener) {
  const bool chooses_port = config.listen.port() == 0;
  for (int ports_left = chooses_port ? kPortsTried : 1;; --ports_left) {
    base::Result<std::unique_ptr<TransportDriver>> driver = open_udp(config, listener);
    if (!driver.ok()) {
      return driver;
    }
    const base::Status streams =
        config.carrier == Carrier::kUdp ? base::Status() : (*driver)->listen_for_streams();
    if (!streams.ok() && ports_left > 1) {
      continue;
    }
    if (!streams.ok() && config.carrier == Carrier::kTcp) {
      return streams;
    }
    if (!streams.ok()) {
      (*driver)->warnings_.push_back("there is UDP alone: " + streams.message());
    }
    return driver;
  }
}

base::Result<std::unique_ptr<TransportDriver>> TransportDriver::open_udp(const DriverConfig& config,
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
    sockets.back().report_errors();
    // All sockets, because a full one holds up datagrams for the others.
    const std::optional<std::string> warning =
        sockets.back().size_buffers(config.socket_buffer_bytes);
    if (path > 0) {
      sockets.back().drop_arrivals();
    } else if (warning) {
      warnings.push_back(*warning);
    }
    address = address.with_port(0);
  }
  sockets[0].report_arrivals(settled.offloads.gro);
  std::unique_ptr<TransportDriver> driver(
      new TransportDriver(settled, std::move(sockets), listener));
  if (base::Status status = driver->begin_helpers(); !status.ok()) {
    return status;
  }
  driver->warnings_ = std::move(warnings);
  return driver;
}

void TransportDriver::begin_epoch(const transport::Epoch& epoch) {
  sender_.wait_until_written();
  port_.begin_epoch(epoch);
  receiver_.forget_sources();
  ranks_.clear();
  if (streams_) {
    streams_->begin_epoch(epoch.number);
  }
}

base::Status TransportDriver::listen_for_streams() {
  base::Result<std::unique_ptr<StreamPaths>> streams =
      StreamPaths::listen(local(), config_.endpoint.exchange.peer_timeout, port_,
                          [this](std::uint16_t rank) { listener_.on_stream_used(rank); });
  if (!streams.ok()) {
    return streams.status();
  }
  streams_ = std::move(streams).value();
  polled_.insert(polled_.end() - 1, {streams_->fd(), POLLIN, 0});
  return {};
}

DriverCounters TransportDriver::counters() const {
  DriverCounters counters{.sent = sender_.counters(),
                          .received = receiver_.counters(),
                          .errors = errors_,
                          .streams = streams_ ? streams_->counters() : StreamCounters{},
                          .faults = port_.faults(),
                          .endpoint = port_.endpoint().counters(),
                          .sleeps = sleeps_};
  counters.sent.datagrams += counters.streams.packets_sent;
  counters.sent.bytes += counters.streams.bytes_sent;
  counters.sent.calls += counters.streams.send_calls;
  counters.sent.waits += counters.streams.waits;
  counters.received.datagrams += counters.streams.packets_received;
  counters.received.bytes += counters.streams.bytes_received;
  counters.received.calls += counters.streams.receive_calls;
  return counters;
}

base::Result<unsigned> TransportDriver::add_peer(std::uint16_t rank, const SocketAddress& address) {
  const base::Result<unsigned> mtu = path_mtu(local(), address);
  if (!mtu.ok()) {
    return mtu.status();
  }
  base::Result<unsigned> limit = datagram_limit(*mtu, address);
  if (!limit.ok()) {
    return limit;
  }
  if (base::Status status = port_.add_peer(rank, now()); !status.ok()) {
    return status;
  }
  sender_.set_address(rank, address);
  receiver_.add_source(address);
  ranks_.emplace(address.to_string(), rank);
  const bool is_tcp = config_.carrier == Carrier::kTcp;
  if (streams_) {
    streams_->add_peer(rank, address, is_tcp, now());
  }
  return is_tcp ? base::Result<unsigned>(SPILLWAY_MAX_PACKET) : limit;
}

void TransportDriver::open_streams() {
  if (streams_) {
    told_ = std::max(told_, now());
    streams_->open_all(told_);
  }
}

void TransportDriver::add_source(const SocketAddress& address) {
  receiver_.add_source(address);
  if (streams_) {
    streams_->add_source(address);
  }
}

base::Status TransportDriver::begin_to_send_with_helper() {
  base::Result<std::unique_ptr<HelperThread>> sends =
      HelperThread::make("spillway-send", "sends packets");
  if (sends.ok()) {
    sender_.use_helper(std::move(sends).value(), this);
  }
  return sends.status();
}

base::Status TransportDriver::help_when_idle() {
  if (config_.io_threads || asks_for_processors_) {
    return {};
  }
  asks_for_processors_ = true;
  return begin_to_send_with_helper();
}

base::Status TransportDriver::begin_helpers() {
  const unsigned threads = config_.io_threads.value_or(1);
  if (threads > 1) {
    if (base::Status status = begin_to_send_with_helper(); !status.ok()) {
      return status;
    }
  }
  if (threads > 2) {
    base::Result<std::unique_ptr<HelperThread>> reads =
        HelperThread::make("spillway-read", "reads packets");
    if (!reads.ok()) {
      return reads.status();
    }
    receiver_.use_helper(std::move(reads).value());
  }
  return {};
}

base::Status TransportDriver::start() {
  try {
    thread_ = std::thread([this] {
      name_thread("spillway-io");
      run();
    });
  } catch (const std::system_error& error) {
    return cannot_make_thread("moves packets", error);
  }
  return {};
}

void TransportDriver::stop() {
  stopped_ = true;
  tasks_.wake();
}

void TransportDriver::stop_and_wait() {
  stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void TransportDriver::run() {
  // By default the kernel may wake us 50 us late, which is a lot for a pacer.
  ::prctl(PR_SET_TIMERSLACK, 1000);
  while (!stopped_) {
    try {
      tell_broken();
      turn_and_wait();
    } catch (const std::exception& thrown) {
      note_broken(thrown);
    }
  }
  sender_.take_back();  // after this, no helper reads payload sources
}

void TransportDriver::turn_and_wait() {
  turn();
  if (!active_ && !stopped_) {
    wait();
  }
}

void TransportDriver::note_broken(const std::exception& thrown) {
  is_out_of_memory_ = dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr;
  if (!is_out_of_memory_) {
    broken_ = base::Status(base::StatusCode::kInternal,
                           fmt::format("the thread that moves packets failed: {}", thrown.what()));
  }
  std::this_thread::sleep_for(kPauseAfterException);
}

// Keeps the error until the listener has taken it without throwing.
void TransportDriver::tell_broken() {
  if (!broken_ && !is_out_of_memory_) {
    return;
  }
  told_ = std::max(told_, now());
  listener_.on_broken(is_out_of_memory_ ? out_of_memory_ : *broken_, port_.endpoint(), told_);
  is_out_of_memory_ = false;
  broken_.reset();
}

void TransportDriver::turn() {
  active_ = false;
  run_tasks();
  active_ |= receive();
  look_at_errors();
  run_timeouts();
  active_ |= transmit();
  active_ |= streams_ && streams_->take_loss();
  report_events();
}

void TransportDriver::run_tasks() {
  if (tasks_.woken()) {
    for (Task& task : tasks_.take()) {
      due_tasks_.push_back(std::move(task));
    }
  }
  // A task that throws is dropped; those after it still run.
  while (!due_tasks_.empty()) {
    const Task task = std::move(due_tasks_.front());
    due_tasks_.pop_front();
    told_ = now();
    active_ = true;
    task(port_.endpoint(), told_);
  }
}

bool TransportDriver::receive() {
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
  // A helper may have read datagrams ahead, which no socket reports.
  bool any = more || receiver_.counters().datagrams > before;
  if (streams_) {
    const std::uint64_t streamed = streams_->counters().packets_received;
    told_ = std::max(told_, read_at);
    more |= streams_->receive(told_);
    any |= streams_->counters().packets_received > streamed;
  }
  turns_behind_ = more ? turns_behind_ + 1 : 0;
  return any;
}

// Runs only once all arrivals were read: a leaving peer says so before its port refuses.
void TransportDriver::look_at_errors() {
  const base::Instant at = now();
  if (turns_behind_ % kMaxTurnsBehind != 0 || (!has_errors_ && at < errors_due_)) {
    return;
  }
  has_errors_ = false;
  errors_due_ = at + kErrorsLookedAtAfter;
  told_ = std::max(told_, at);
  for (const UdpSocket& socket : sender_.sockets()) {
    read_errors(socket, [this](const SocketError& error) { on_error(error); });
  }
}

void TransportDriver::on_error(const SocketError& error) {
  if (!error.from_network) {
    return;  // about a failed call, which counted it
  }
  if (error.error != ECONNREFUSED) {
    ++errors_.ignored_icmp;
    return;
  }
  const auto rank = ranks_.find(error.to.to_string());
  const bool is_ours = rank != ranks_.end() && port_.on_refused(rank->second, error.quoted, told_);
  ++(is_ours ? errors_.refusals : errors_.forged_refusals);
  active_ = true;
}

// Silence means something only once all arrivals were read; but a flood must not stop timeouts.
void TransportDriver::run_timeouts() {
  if (turns_behind_ % kMaxTurnsBehind != 0) {
    return;
  }
  const base::Instant at = now();
  if (port_.endpoint().next_timeout() <= at) {
    told_ = std::max(told_, at);
    port_.endpoint().on_timeout(told_);
    look_at_streams();  // silent peers are checked regularly
    active_ = true;
  } else if (streams_ && streams_->next_timeout() <= at) {
    told_ = std::max(told_, at);
    look_at_streams();
  }
  if (listener_.next_timeout() <= at) {
    report_events();  // earlier events must precede the timeout
    told_ = std::max(told_, at);
    listener_.on_timeout(port_.endpoint(), told_);
    active_ = true;
  }
}

void TransportDriver::look_at_streams() {
  if (streams_) {
    streams_->on_timeout(told_);
  }
}

// Sends what the endpoint has, as far as pacer and sockets allow. True if anything left.
bool TransportDriver::transmit() {
  if (asks_for_processors_) {
    sender_.let_help(listener_.leaves_processors());
  }
  bool any = false;
  for (int i = 0; i < kFlushesPerTurn; ++i) {
    if (sender_.empty() || sender_.is_busy()) {
      gather(now());
    }
    const bool streamed = streams_ && streams_->flush(told_);
    any |= streamed;
    if (sender_.is_busy()) {
      // Read arrivals before handing the next batch to the helper. Do not sleep meanwhile.
      blocked_ = false;
      any = true;
      break;
    }
    // flush() below sends what a helper could not.
    if (sender_.empty() && take_back()) {
      blocked_ = false;
      if (streamed) {
        continue;
      }
      break;
    }
    const std::uint64_t before = sender_.counters().datagrams;
    blocked_ = !sender_.flush();
    tell_unsent();
    any |= !blocked_ || sender_.counters().datagrams > before;
    if (blocked_) {
      break;
    }
  }
  return any;
}

// Takes the helper's result; false if some datagrams wait for room in a socket.
bool TransportDriver::take_back() {
  const bool have_left = sender_.take_back();
  tell_unsent();
  return have_left;
}

void TransportDriver::tell_unsent() {
  if (const std::optional<Unsent> unsent = sender_.take_unsent()) {
    port_.endpoint().on_unsent(unsent->peer, unsent->bytes, unsent->error, told_);
  }
}

// The pacer holds datagrams with data, never control packets: others wait for those.
void TransportDriver::gather(base::Instant at) {
  told_ = std::max(told_, at);
  std::size_t streamed = 0;
  while (sender_.has_room() && streamed < kStreamBytesPerGather) {
    transport::Endpoint& endpoint = port_.endpoint();
    if (!(pacer_.may_send(at) ? endpoint.poll_transmit(told_, transmission_)
                              : endpoint.poll_unpaced(told_, transmission_))) {
      return;
    }
    if (transmission_.route.carrier == transport::Carrier::kStream) {
      streamed += streams_->write(transmission_);
      continue;
    }
    if (sender_.has_writer() && transmission_.kind == transport::TransmissionKind::kData) {
      sender_.add(transmission_);
      pacer_.sent(wire_bytes(transmission_.data_bytes, config_.listen), at);
      continue;
    }
    const std::size_t size = port_.write(transmission_, sender_.room());
    sender_.commit(transmission_.route, size);
    pacer_.sent(wire_bytes(size, config_.listen), at);
  }
}

void TransportDriver::report_events() {
  transport::Event event;
  while (port_.endpoint().poll_event(event)) {
    if (const auto* sent = std::get_if<transport::SendReport>(&event)) {
      sender_.wait_until_written(sent->id, sent->to);  // its payload source may be destroyed now
    }
    listener_.on_event(event, port_.endpoint(), told_);
    active_ = true;
  }
}

// Sleeps until something is due or arrives.
void TransportDriver::wait() {
  blocked_ = !take_back();
  base::Instant due = std::min(port_.endpoint().next_timeout(), listener_.next_timeout());
  if (streams_) {
    due = std::min(due, streams_->next_timeout());
  }
  const bool pacer_holds = sender_.empty() && !pacer_.may_send(now());
  sleep_until(pacer_holds ? std::min(due, pacer_.next()) : due);
}

void TransportDriver::sleep_until(base::Instant when) {
  ++sleeps_;
  const timespec timeout = timespec_of(when - now());
  polled_.back() = {blocked_ ? sender_.waiting_fd() : -1, POLLOUT, 0};
  const int ready = ::ppoll(polled_.data(), polled_.size(),
                            when == transport::kNever ? nullptr : &timeout, nullptr);
  has_errors_ = has_errors_ ||
                (ready > 0 && std::any_of(polled_.begin(), polled_.end(), [](const pollfd& fd) {
                   return (fd.revents & POLLERR) != 0;
                 }));
}

}  // namespace spillway::net
