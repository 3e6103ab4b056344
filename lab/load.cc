// SPDX-License-Identifier: Apache-2.0
#include "lab/load.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "lab/output.h"
#include "net/address.h"
#include "net/system_call.h"
#include "wire/frame_overhead.h"

namespace spillway::lab {
namespace {

constexpr std::uint16_t kPort = 9077;
constexpr unsigned kHeaders = 28;   // of IPv4 and UDP together
constexpr unsigned kSmall = 64;     // payload of an answer
constexpr unsigned kEthernet = 14;  // a frame's header; what surrounds it is SPILLWAY_WIRE_OVERHEAD
constexpr std::size_t kMaxRun = 32;  // datagrams per call
constexpr std::size_t kMaxRunBytes = 60'000;
constexpr int kComputingNice = 10;
constexpr base::Duration kTick = base::milliseconds(1);
// What is overdue by more than this is not sent. In a slow network a backlog may last longer, as
// its queues do.
constexpr base::Duration kMostAtOnce = base::milliseconds(5);
constexpr std::int64_t kMostPacketsAtOnce = 64;
constexpr std::string_view kSent = "of the load was sent: ";

base::Result<std::vector<sockaddr_in>> addresses_of(std::string_view peers) {
  std::vector<sockaddr_in> addresses;
  while (!peers.empty()) {
    const std::size_t comma = std::min(peers.find(','), peers.size());
    const base::Result<net::SocketAddress> peer =
        net::SocketAddress::parse(std::string(peers.substr(0, comma)));
    if (!peer.ok()) {
      return peer.status();
    }
    if (peer->is_ipv6()) {
      return base::invalid_argument("the load is for IPv4");
    }
    sockaddr_in address = *reinterpret_cast<const sockaddr_in*>(peer->data());
    address.sin_port = htons(kPort);
    addresses.push_back(address);
    peers.remove_prefix(std::min(comma + 1, peers.size()));
  }
  return addresses;
}

// Sends `bytes` bytes, which the socket cuts into datagrams. False if the kernel refused them.
bool send_run(int fd, const sockaddr_in& to, std::size_t bytes) {
  static const std::vector<std::uint8_t> kZeros(65536);
  return ::sendto(fd, kZeros.data(), bytes, 0, reinterpret_cast<const sockaddr*>(&to),
                  sizeof(to)) >= 0;
}

// Returns the share of the load that was sent.
double send_until(base::Instant end, int fd, const sockaddr_in& to, const LoadOptions& options) {
  const base::MonotonicClock clock;
  const base::Bytes wire = base::bytes(options.mtu + kEthernet + SPILLWAY_WIRE_OVERHEAD);
  const base::Duration each = base::transmission_time(wire, options.rate);
  const std::size_t payload = options.mtu - kHeaders;
  const std::size_t longest = std::min(kMaxRunBytes / payload, kMaxRun);
  const base::Duration most_at_once = std::max(kMostAtOnce, each * kMostPacketsAtOnce);
  std::size_t sent = 0;
  for (base::Instant due = clock.now(); due < end;) {
    const base::Instant now = clock.now();
    due = std::max(due, now - most_at_once);
    while (due <= now) {
      std::size_t packets = 0;
      for (; due <= now && packets < longest; due = due + each) {
        ++packets;
      }
      sent += send_run(fd, to, packets * payload) ? packets : 0;
    }
    const timespec pause = net::timespec_of(kTick);
    ::nanosleep(&pause, nullptr);
  }
  const base::Duration offered = std::max(each, options.length);
  return static_cast<double>(sent) * static_cast<double>(each.count()) /
         static_cast<double>(offered.count());
}

void answer_until(base::Instant end, int fd) {
  const base::MonotonicClock clock;
  std::vector<std::uint8_t> buffer(65536);
  bool answers = false;
  while (clock.now() < end) {
    pollfd readable = {fd, POLLIN, 0};
    if (::poll(&readable, 1, 10) <= 0) {
      continue;
    }
    ssize_t got = 0;
    do {
      sockaddr_in from = {};
      socklen_t size = sizeof(from);
      got = ::recvfrom(fd, buffer.data(), buffer.size(), MSG_DONTWAIT,
                       reinterpret_cast<sockaddr*>(&from), &size);
      answers = got > kSmall ? !answers : answers;
      if (got > kSmall && answers) {
        (void)send_run(fd, from, kSmall);
      }
    } while (got > 0);
  }
}

// Uses only spare CPU time (nice): a real rank does not send while it computes.
void compute_until(base::Instant end) {
  (void)!::nice(kComputingNice);
  const base::MonotonicClock clock;
  volatile double sum = 1.0;
  while (clock.now() < end) {
    for (int i = 0; i < 1000; ++i) {
      sum = sum * 1.0000001;
    }
  }
}

}  // namespace

base::Status run_load(const LoadOptions& options) {
  const base::Result<std::vector<sockaddr_in>> peers = addresses_of(options.peers);
  if (!peers.ok()) {
    return peers.status();
  }
  if (options.rank >= peers->size() || options.mtu <= kHeaders + kSmall) {
    return base::invalid_argument(
        fmt::format("rank {} of {}, MTU {}", options.rank, peers->size(), options.mtu));
  }
  const net::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_in& own = (*peers)[options.rank];
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0) {
    return net::system_error("open a socket for the load", errno);
  }
  const int segment = static_cast<int>(options.mtu - kHeaders);
  if (::setsockopt(socket.get(), SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment)) != 0) {
    return net::system_error("have the kernel cut datagrams", errno);
  }
  const base::Instant end = base::MonotonicClock().now() + options.length;
  std::thread answering([&] { answer_until(end, socket.get()); });
  std::thread computing([&] { compute_until(end); });
  const double share =
      send_until(end, socket.get(), (*peers)[(options.rank + 1) % peers->size()], options);
  computing.join();
  answering.join();
  write_all(STDOUT_FILENO, fmt::format("{}{:.3f}\n", kSent, share));
  return {};
}

double least_share_sent(std::string_view printed, std::size_t ranks) {
  double least = 1.0;
  std::size_t found = 0;
  for (std::size_t at = printed.find(kSent); at != std::string_view::npos;
       at = printed.find(kSent)) {
    printed.remove_prefix(at + kSent.size());
    double share = 0.0;
    std::from_chars(printed.data(), printed.data() + printed.size(), share);
    least = std::min(least, share);
    ++found;
  }
  return found < ranks ? 0.0 : least;
}

}  // namespace spillway::lab
