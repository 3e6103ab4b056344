// SPDX-License-Identifier: Apache-2.0
#include "cli/wire_speed.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/flood.h"
#include "cli/plane_payload.h"
#include "cli/process_pair.h"
#include "net/transport_driver.h"

namespace spillway::cli {
namespace {

constexpr std::size_t kStreamBytes = 128 * 1024;  // iperf3's block
constexpr std::size_t kMostGsoBytes = 65000;
constexpr int kSocketBufferBytes = 4 * 1024 * 1024;

net::SocketAddress loopback(std::uint16_t port) {
  return value_or_throw(net::SocketAddress::parse(fmt::format("127.0.0.1:{}", port)));
}

base::Instant now() {
  return base::MonotonicClock().now();
}

double seconds_between(base::Instant a, base::Instant b) {
  return static_cast<double>((b - a).count()) * 1e-9;
}

// ------------------------------------------------------------------ what the sides tell each other

void tell_port(int stream, std::uint16_t port) {
  if (::write(stream, &port, sizeof(port)) != sizeof(port)) {
    throw CommandError("the sender is gone");
  }
}

std::uint16_t hear_port(int stream) {
  std::uint16_t port = 0;
  if (::read(stream, &port, sizeof(port)) != sizeof(port)) {
    throw CommandError("the receiver is gone");
  }
  return port;
}

// Whether the other side said that it is done.
bool is_done(int stream, int wait_milliseconds = 0) {
  pollfd poll{stream, POLLIN, 0};
  return ::poll(&poll, 1, wait_milliseconds) > 0;
}

// ------------------------------------------------------------------ raw UDP

SideResult blast(int stream, const WireSpeedOptions& options) {
  const net::UdpSocket socket = value_or_throw(net::UdpSocket::open(loopback(0)));
  const net::SocketAddress target = loopback(hear_port(stream));
  if (::connect(socket.fd(), target.data(), target.size()) != 0) {
    throw CommandError("cannot connect on loopback");
  }
  const int segment = static_cast<int>(options.datagram_bytes);
  ::setsockopt(socket.fd(), SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment));
  const std::size_t segments = std::min<std::size_t>(kMostGsoBytes / options.datagram_bytes, 64);
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

// ------------------------------------------------------------------ Spillway

constexpr packetize::Job kJob{.id = 1, .epoch = 1, .seed = 1};

wire::PacketAuth auth_of(const WireSpeedOptions& options) {
  if (!options.keyed) {
    return packetize::unkeyed_auth(kJob);
  }
  const std::array<std::uint8_t, wire::PacketAuth::kMinSecretBytes> secret{1, 2, 3};
  return value_or_throw(wire::PacketAuth::keyed(secret));
}

net::DriverConfig driver_config(const WireSpeedOptions& options, std::uint16_t rank) {
  net::DriverConfig config = net::driver_config_from_environment();
  config.offloads = options.offloads;
  config.listen = loopback(0);
  config.socket_buffer_bytes = kSocketBufferBytes;
  config.endpoint.job = kJob.id;
  config.endpoint.epoch = kJob.epoch;
  config.endpoint.rank = rank;
  transport::EndpointTuning& tuning = config.endpoint.tuning;
  tuning.paths = static_cast<std::uint8_t>(options.paths);
  const std::size_t run = std::min<std::size_t>(kMostGsoBytes / options.datagram_bytes, 64);
  tuning.burst_packets = static_cast<std::uint8_t>(run);
  tuning.report_packets = static_cast<std::uint8_t>(std::min<std::size_t>(4 * run, 255));
  tuning.receive_rate = base::gigabits_per_second(200);
  tuning.unsolicited = base::bytes(1024 * 1024);
  tuning.probe_min = base::milliseconds(2);
  config.endpoint.congestion.window_initial = base::bytes(1024 * 1024);
  config.endpoint.congestion.window_max = base::bytes(2 * 1024 * 1024);
  config.endpoint.congestion.delay_target = base::milliseconds(1);
  return config;
}

wire::MessageId message_id(std::uint32_t number) {
  return {.step = number, .source = 0, .phase = wire::Phase::kPointToPoint};
}

// Keeps messages_at_once messages under way until the time is over and all have ended.
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
                       .loss = {.bound_ppm = 0, .min_planes = 16},
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
    // One more than the sender has under way: the next message never waits to be expected.
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
      bytes_ = 0.0;  // counted from the end of the first message on
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
                         .loss = {.bound_ppm = 0, .min_planes = 16},
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
  const wire::PacketAuth auth = auth_of(options);
  const packetize::PacketPlan plan = plan_of_size(options.message_bytes, options.datagram_bytes, 0);
  PlaneSource source(plan, kJob, auth);
  MessageSender sender(options, plan, source);
  const auto driver =
      value_or_throw(net::TransportDriver::open(driver_config(options, 0), auth, sender));
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
  const wire::PacketAuth auth = auth_of(options);
  const packetize::PacketPlan plan = plan_of_size(options.message_bytes, options.datagram_bytes, 0);
  PlaneSink sink(plan, auth);
  MessageReceiver receiver(options, plan, sink);
  const auto driver =
      value_or_throw(net::TransportDriver::open(driver_config(options, 1), auth, receiver));
  tell_port(stream, driver->local().port());
  value_or_throw(driver->add_peer(0, loopback(hear_port(stream))));
  std::optional<Flood> flood;
  if (options.garbage > base::BitRate()) {
    flood.emplace(driver->local(), options.garbage);
  }
  driver->post([&receiver](transport::Endpoint& endpoint, base::Instant at) {
    receiver.begin(endpoint, at);
  });
  driver->start();
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

}  // namespace spillway::cli
