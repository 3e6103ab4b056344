// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/loopback/wire_speed.h"

#include <fmt/format.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "tools/bench/command_error.h"
#include "tools/bench/loopback/message_sides.h"
#include "tools/bench/loopback/process_pair.h"

namespace spillway::bench {
namespace {

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
