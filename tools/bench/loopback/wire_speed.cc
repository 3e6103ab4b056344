// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/loopback/wire_speed.h"

#include <fmt/format.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "base/units.h"
#include "net/address.h"
#include "net/datagrams.h"
#include "net/sockets.h"
#include "net/system_call.h"
#include "net/transport_driver.h"
#include "tools/bench/command_error.h"
#include "tools/bench/loopback/process_pair.h"

namespace spillway::bench {
namespace {

// ------------------------------------------------------------------ garbage

// Sends unwanted datagrams at a steady rate from a process of its own: random bytes, packets of
// another job, and packets with correct fields but forged checks. A receiver must ignore them.

class Flood {
 public:
  // Starts sending to `target` at once. Call from a process with one thread.
  Flood(const net::SocketAddress& target, base::BitRate rate);
  ~Flood();  // ends the process
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

 private:
  pid_t pid_ = -1;
};

constexpr unsigned kDatagramBytes = 1452;
constexpr std::uint64_t kGarbageKey = 0xBADF00D;
constexpr int kBatch = 16;

std::vector<std::uint8_t> random_datagram(base::RandomSequence& random) {
  std::vector<std::uint8_t> bytes(1 + random.next_word() % kDatagramBytes);
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(random.next_word());
  }
  return bytes;
}

// Well-formed packets with checks made under another job's key.
std::vector<std::vector<std::uint8_t>> forged_datagrams(std::uint16_t job) {
  const wire::PacketAuth auth = packetize::seeded_auth({.id = job, .epoch = 1, .seed = 999});
  const packetize::PacketPlan plan = plan_of_size(100'000, kDatagramBytes, 0);
  PlaneSource source(plan);
  std::vector<std::vector<std::uint8_t>> datagrams;
  for (std::uint16_t packet = 0; packet < 16; ++packet) {
    wire::DataStamp stamp;
    stamp.job = job;
    stamp.epoch = 1;
    stamp.destination = 1;
    stamp.number = packet + 1U;
    stamp.packet = packet;
    std::vector<std::uint8_t> bytes(SPILLWAY_MAX_PACKET);
    bytes.resize(source.write(stamp, auth, bytes));
    datagrams.push_back(std::move(bytes));
  }
  return datagrams;
}

std::vector<std::vector<std::uint8_t>> unwanted_datagrams() {
  std::vector<std::vector<std::uint8_t>> all = forged_datagrams(/*job=*/1);
  for (std::vector<std::uint8_t>& foreign : forged_datagrams(/*job=*/77)) {
    all.push_back(std::move(foreign));
  }
  base::RandomSequence random(kGarbageKey);
  for (int i = 0; i < 16; ++i) {
    all.push_back(random_datagram(random));
  }
  return all;
}

[[noreturn]] void flood(const net::SocketAddress& target, base::BitRate rate) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  net::name_thread("flood");
  cpu_set_t all;  // the parent is pinned to the receiver's core
  std::memset(&all, 0xFF, sizeof(all));
  ::sched_setaffinity(0, sizeof(all), &all);
  const net::UdpSocket socket = value_or_throw(net::UdpSocket::open(target.with_port(0)));
  const std::vector<std::vector<std::uint8_t>> datagrams = unwanted_datagrams();
  net::SendPacer pacer(rate, base::bytes(kBatch * kDatagramBytes));
  const base::MonotonicClock clock;
  for (std::size_t next = 0;;) {
    const base::Instant now = clock.now();
    if (!pacer.may_send(now)) {
      sleep_until(pacer.next());
      continue;
    }
    for (int i = 0; i < kBatch; ++i) {
      const std::vector<std::uint8_t>& bytes = datagrams[next++ % datagrams.size()];
      ::sendto(socket.fd(), bytes.data(), bytes.size(), 0, target.data(), target.size());
      pacer.sent(base::bytes(static_cast<std::int64_t>(bytes.size())), now);
    }
  }
}

Flood::Flood(const net::SocketAddress& target, base::BitRate rate) : pid_(::fork()) {
  if (pid_ < 0) {
    throw CommandError("cannot start a process");
  }
  if (pid_ == 0) {
    flood(target, rate);
  }
}

Flood::~Flood() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

// ------------------------------------------------------------------ messages

// The key is all zeros: it costs as much as any other.
transport::Epoch epoch_of(const WireSpeedOptions& options) {
  return {.job = 1, .number = 1, .session = {.key = {}, .protection = options.protection}};
}

net::DriverConfig driver_config(const WireSpeedOptions& options, std::uint16_t rank) {
  net::DriverConfig config;
  config.offloads = options.offloads;
  config.listen = loopback(0);
  config.socket_buffer_bytes = kSocketBufferBytes;
  config.endpoint.rank = rank;
  transport::ExchangeConfig& exchange = config.endpoint.exchange;
  exchange.paths = static_cast<std::uint8_t>(options.paths);
  const std::size_t run = std::min<std::size_t>(kMaxGsoBytes / options.datagram_bytes, 64);
  exchange.burst_packets = static_cast<std::uint8_t>(run);
  exchange.report_packets = static_cast<std::uint8_t>(std::min<std::size_t>(4 * run, 255));
  exchange.receive_rate = base::gigabits_per_second(200);
  exchange.unsolicited = base::bytes(1024 * 1024);
  exchange.probe_min = base::milliseconds(2);
  exchange.window = {.initial = base::bytes(1024 * 1024),
                     .most = base::bytes(2 * 1024 * 1024),
                     .delay_target = base::milliseconds(1)};
  return config;
}

wire::MessageId message_id(std::uint64_t number) {
  return {.operation = number, .source = 0, .phase = wire::Phase::kPointToPoint};
}

// Keeps messages_at_once messages in flight until the time is over and all have ended.
class MessageSender final : public net::DriverListener {
 public:
  MessageSender(const WireSpeedOptions& options, const packetize::PacketPlan& plan,
                PlaneSource& source)
      : options_(options), plan_(plan), source_(source) {}

  void attach(net::TransportDriver& driver) { driver_ = &driver; }

  void begin(transport::Endpoint& endpoint, base::Instant at) {
    end_ = at + base::nanoseconds(static_cast<std::int64_t>(options_.seconds * 1e9));
    for (unsigned i = 0; i < options_.messages_at_once; ++i) {
      send_next(endpoint, at);
    }
  }

  void on_event(const transport::Event& event, transport::Endpoint& endpoint,
                base::Instant at) override {
    if (!std::holds_alternative<transport::SendReport>(event)) {
      failed_ = true;
      driver_->stop();
      return;
    }
    --open_;
    if (at < end_) {
      send_next(endpoint, at);
    } else if (open_ == 0) {
      driver_->stop();
    }
  }

  bool failed() const { return failed_; }

 private:
  void send_next(transport::Endpoint& endpoint, base::Instant at) {
    const base::Status status =
        endpoint.send({.id = message_id(next_++),
                       .to = 1,
                       .packets = static_cast<std::uint32_t>(plan_.packet_count()),
                       .packet_bytes = static_cast<std::uint32_t>(plan_.max_packet_size()),
                       .loss = {.loss_bound_ppm = 0, .min_planes = 16},
                       .source = &source_},
                      at);
    if (!status.ok()) {
      throw CommandError(status);
    }
    ++open_;
  }

  const WireSpeedOptions& options_;
  const packetize::PacketPlan& plan_;
  PlaneSource& source_;
  net::TransportDriver* driver_ = nullptr;
  base::Instant end_;
  std::uint32_t next_ = 0;
  unsigned open_ = 0;
  bool failed_ = false;
};

class MessageReceiver final : public net::DriverListener {
 public:
  MessageReceiver(const WireSpeedOptions& options, const packetize::PacketPlan& plan,
                  PlaneSink& sink)
      : options_(options), plan_(plan), sink_(sink) {}

  void begin(transport::Endpoint& endpoint, base::Instant at) {
    // One more than the sender has in flight, so that the next message is always expected already.
    for (unsigned i = 0; i <= options_.messages_at_once; ++i) {
      expect_next(endpoint, at);
    }
  }

  void on_event(const transport::Event& event, transport::Endpoint& endpoint,
                base::Instant /*at*/) override {
    const auto* report = std::get_if<transport::ReceiveReport>(&event);
    if (report == nullptr || report->outcome != transport::Outcome::kEverything) {
      return;
    }
    last_ = now();
    bytes_ += static_cast<double>(plan_.layout().tensor_length()) * plan_.planes() / 8;
    if (messages_++ == 0) {
      first_ = last_;
      bytes_ = 0.0;  // counting starts at the end of the first message
    }
    expect_next(endpoint, last_);
  }

  SideResult result() const {
    SideResult result;
    result.bytes = bytes_;
    result.seconds = seconds_between(first_, last_);
    return result;
  }

 private:
  void expect_next(transport::Endpoint& endpoint, base::Instant at) {
    const base::Status status =
        endpoint.expect({.id = message_id(next_++),
                         .packets = static_cast<std::uint32_t>(plan_.packet_count()),
                         .packet_bytes = static_cast<std::uint32_t>(plan_.max_packet_size()),
                         .planes = static_cast<std::uint8_t>(plan_.planes()),
                         .loss = {.loss_bound_ppm = 0, .min_planes = 16},
                         .sink = &sink_},
                        at);
    if (!status.ok()) {
      throw CommandError(status);
    }
  }

  const WireSpeedOptions& options_;
  const packetize::PacketPlan& plan_;
  PlaneSink& sink_;
  std::uint32_t next_ = 0;
  std::uint64_t messages_ = 0;
  double bytes_ = 0.0;
  base::Instant first_;
  base::Instant last_;
};

SideResult send_messages(int stream, const WireSpeedOptions& options) {
  const packetize::PacketPlan plan = plan_of_size(options.message_bytes, options.datagram_bytes, 0);
  PlaneSource source(plan);
  MessageSender sender(options, plan, source);
  const auto driver = value_or_throw(net::TransportDriver::open(driver_config(options, 0), sender));
  driver->begin_epoch(epoch_of(options));
  sender.attach(*driver);
  const net::SocketAddress target = loopback(hear_port(stream));
  tell_port(stream, driver->local().port());
  value_or_throw(driver->add_peer(1, target));
  driver->post(
      [&sender](transport::Endpoint& endpoint, base::Instant at) { sender.begin(endpoint, at); });
  driver->run();
  if (sender.failed()) {
    throw CommandError("the receiver stopped answering");
  }
  const transport::EndpointCounters counters = driver->counters().endpoint;
  SideResult result;
  result.extra = static_cast<double>(counters.data_resent) /
                 static_cast<double>(std::max<std::uint64_t>(counters.data_sent, 1));
  return result;
}

SideResult receive_messages(int stream, const WireSpeedOptions& options) {
  const packetize::PacketPlan plan = plan_of_size(options.message_bytes, options.datagram_bytes, 0);
  PlaneSink sink(plan);
  MessageReceiver receiver(options, plan, sink);
  const auto driver =
      value_or_throw(net::TransportDriver::open(driver_config(options, 1), receiver));
  driver->begin_epoch(epoch_of(options));
  tell_port(stream, driver->local().port());
  value_or_throw(driver->add_peer(0, loopback(hear_port(stream))));
  std::optional<Flood> flood;
  if (options.garbage > base::BitRate()) {
    flood.emplace(driver->local(), options.garbage);
  }
  driver->post([&receiver](transport::Endpoint& endpoint, base::Instant at) {
    receiver.begin(endpoint, at);
  });
  if (const base::Status status = driver->start(); !status.ok()) {
    throw CommandError(status);
  }
  while (!is_done(stream, 1000)) {
  }
  driver->stop_and_wait();
  SideResult result = receiver.result();
  for (const std::uint64_t count : driver->counters().faults) {
    result.extra += static_cast<double>(count);
  }
  if (!sink.holds_what_was_sent()) {
    throw CommandError("what arrived is not what was sent");
  }
  return result;
}

// ------------------------------------------------------------------ the measurements

constexpr std::size_t kStreamBytes = 128 * 1024;  // block size of iperf3

// ------------------------------------------------------------------ raw UDP

SideResult blast(int stream, const WireSpeedOptions& options) {
  const net::UdpSocket socket = value_or_throw(net::UdpSocket::open(loopback(0)));
  const net::SocketAddress target = loopback(hear_port(stream));
  if (::connect(socket.fd(), target.data(), target.size()) != 0) {
    throw CommandError("cannot connect on loopback");
  }
  const int segment = static_cast<int>(options.datagram_bytes);
  ::setsockopt(socket.fd(), SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment));
  const std::size_t segments = std::min<std::size_t>(kMaxGsoBytes / options.datagram_bytes, 64);
  const std::vector<std::uint8_t> data(segments * options.datagram_bytes);
  const base::Instant start = now();
  SideResult result;
  pollfd writable{socket.fd(), POLLOUT, 0};
  while (seconds_between(start, now()) < options.seconds) {
    const ssize_t sent = ::send(socket.fd(), data.data(), data.size(), 0);
    if (sent < 0) {
      ::poll(&writable, 1, 10);
      continue;
    }
    result.bytes += static_cast<double>(sent);
  }
  result.seconds = seconds_between(start, now());
  return result;
}

SideResult count_datagrams(int stream) {
  net::UdpSocket socket = value_or_throw(net::UdpSocket::open(loopback(0)));
  const int on = 1;
  ::setsockopt(socket.fd(), SOL_UDP, UDP_GRO, &on, sizeof(on));
  socket.size_buffers(kSocketBufferBytes);
  tell_port(stream, socket.local().port());
  std::vector<std::uint8_t> buffer(64 * 1024);
  SideResult result;
  base::Instant first;
  base::Instant last;
  std::array<pollfd, 2> polled{{{socket.fd(), POLLIN, 0}, {stream, POLLIN, 0}}};
  for (;;) {
    const ssize_t size = ::recv(socket.fd(), buffer.data(), buffer.size(), 0);
    if (size < 0) {
      if (is_done(stream)) {
        break;
      }
      ::poll(polled.data(), polled.size(), 1000);
      continue;
    }
    last = now();
    if (result.bytes == 0.0) {
      first = last;
    }
    result.bytes += static_cast<double>(size);
  }
  result.seconds = seconds_between(first, last);
  return result;
}

// ------------------------------------------------------------------ TCP

SideResult stream_out(int stream, const WireSpeedOptions& options) {
  const net::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const net::SocketAddress target = loopback(hear_port(stream));
  if (::connect(socket.get(), target.data(), target.size()) != 0) {
    throw CommandError("cannot connect on loopback");
  }
  const std::vector<std::uint8_t> data(kStreamBytes);
  const base::Instant start = now();
  SideResult result;
  while (seconds_between(start, now()) < options.seconds) {
    result.bytes += static_cast<double>(
        std::max<ssize_t>(::send(socket.get(), data.data(), data.size(), MSG_NOSIGNAL), 0));
  }
  result.seconds = seconds_between(start, now());
  return result;
}

SideResult stream_in(int stream) {
  const net::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const net::SocketAddress any = loopback(0);
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::bind(listener.get(), any.data(), any.size()) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    throw CommandError("cannot listen on loopback");
  }
  tell_port(stream, net::SocketAddress::from(bound).port());
  const net::UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::vector<std::uint8_t> buffer(kStreamBytes);
  SideResult result;
  const base::Instant start = now();
  for (;;) {
    const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (got <= 0) {
      break;
    }
    result.bytes += static_cast<double>(got);
  }
  result.seconds = seconds_between(start, now());
  return result;
}

WireSpeed speed_of(const std::pair<SideResult, SideResult>& sides) {
  const auto& [sent, received] = sides;
  const double bytes = std::max(received.bytes, 1.0);
  return {.gigabits_per_second = received.bytes * 8e-9 / std::max(received.seconds, 1e-9),
          .cpu_nanoseconds_per_byte = (sent.cpu_seconds + received.cpu_seconds) * 1e9 / bytes,
          .cycles_per_byte = (sent.cycles + received.cycles) / bytes,
          .lost_share = sent.extra,
          .refused = received.extra};
}

}  // namespace

WireSpeed measure_raw_udp(const WireSpeedOptions& options) {
  const auto sides = run_pair([&](int stream) { return blast(stream, options); }, count_datagrams);
  WireSpeed speed = speed_of(sides);
  speed.lost_share = 1.0 - sides.second.bytes / std::max(sides.first.bytes, 1.0);
  return speed;
}

WireSpeed measure_tcp(const WireSpeedOptions& options) {
  return speed_of(run_pair([&](int stream) { return stream_out(stream, options); }, stream_in));
}

std::optional<double> iperf3_gigabits_per_second(double seconds) {
  const std::string command = fmt::format(
      "command -v iperf3 >/dev/null || exit 1; "
      "iperf3 -s -1 -p 57201 -A 1 -i 0 >/dev/null 2>&1 & sleep 0.5; "
      "iperf3 -c 127.0.0.1 -p 57201 -A 0 -t {} -J 2>/dev/null",
      std::max(1, static_cast<int>(seconds)));
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) {
    return std::nullopt;
  }
  std::string text;
  std::array<char, 4096> block{};
  for (std::size_t got = 0; (got = std::fread(block.data(), 1, block.size(), pipe)) > 0;) {
    text.append(block.data(), got);
  }
  ::pclose(pipe);
  const auto report = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json::json_pointer rate("/end/sum_received/bits_per_second");
  if (report.is_discarded() || !report.contains(rate)) {
    return std::nullopt;
  }
  return report.at(rate).get<double>() * 1e-9;
}

WireSpeed measure_spillway(const WireSpeedOptions& options) {
  return speed_of(run_pair([&](int stream) { return send_messages(stream, options); },
                           [&](int stream) { return receive_messages(stream, options); }));
}

}  // namespace spillway::bench
