// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/incast/tcp_carrier.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "tools/bench/command_error.h"
#include "tools/bench/loopback/process_pair.h"

namespace spillway::bench {
namespace {

constexpr std::size_t kBlockBytes = 64 * 1024;
constexpr int kConnectAttempts = 2000;  // a few milliseconds apart

net::UniqueFd listen_at(const net::SocketAddress& address, std::size_t backlog) {
  net::UniqueFd listener(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(listener.get(), address.data(), address.size()) != 0 ||
      ::listen(listener.get(), static_cast<int>(backlog)) != 0) {
    throw CommandError(fmt::format("cannot listen at {}", address.to_string()));
  }
  return listener;
}

bool send_bytes(int stream, std::uint64_t bytes) {
  const std::vector<char> block(kBlockBytes);
  while (bytes > 0) {
    const ssize_t sent =
        ::send(stream, block.data(), std::min<std::uint64_t>(bytes, block.size()), MSG_NOSIGNAL);
    if (sent <= 0) {
      return false;
    }
    bytes -= static_cast<std::uint64_t>(sent);
  }
  return true;
}

bool receive_bytes(int stream, std::uint64_t bytes) {
  std::vector<char> block(kBlockBytes);
  while (bytes > 0) {
    const ssize_t got =
        ::recv(stream, block.data(), std::min<std::uint64_t>(bytes, block.size()), 0);
    if (got <= 0) {
      return false;
    }
    bytes -= static_cast<std::uint64_t>(got);
  }
  return true;
}

}  // namespace

TcpCarrier::TcpCarrier(const CarrierConfig& config, const TcpCarrierOptions& options)
    : config_(config) {
  for (std::uint32_t number = 0; number < config.flows.size(); ++number) {
    const scenario::Flow& flow = config.flows[number];
    if (flow.from == config.rank) {
      outgoing_.push_back({flow, number, {}});
    } else if (flow.to == config.rank) {
      incoming_.push_back({flow, number, {}});
    }
  }
  const net::UniqueFd listener =
      listen_at(options.peers[config.rank], std::max<std::size_t>(incoming_.size(), 1));
  for (Leg& leg : outgoing_) {
    connect_to(options.peers[leg.flow.to], options.congestion_control, leg);
  }
  accept_all(listener);
}

void TcpCarrier::connect_to(const net::SocketAddress& address,
                            const std::string& congestion_control, Leg& leg) {
  for (int attempt = 0; attempt < kConnectAttempts; ++attempt) {
    net::UniqueFd stream(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!congestion_control.empty() &&
        ::setsockopt(stream.get(), IPPROTO_TCP, TCP_CONGESTION, congestion_control.data(),
                     static_cast<socklen_t>(congestion_control.size())) != 0) {
      throw CommandError(
          fmt::format("this kernel has no TCP congestion control '{}': see `sysctl "
                      "net.ipv4.tcp_available_congestion_control`",
                      congestion_control));
    }
    if (::connect(stream.get(), address.data(), address.size()) == 0 &&
        ::send(stream.get(), &leg.number, sizeof(leg.number), MSG_NOSIGNAL) == sizeof(leg.number)) {
      leg.stream = std::move(stream);
      return;
    }
    ::usleep(5000);
  }
  throw CommandError(fmt::format("nobody listens at {}", address.to_string()));
}

// A connection's first bytes name its flow.
void TcpCarrier::accept_all(const net::UniqueFd& listener) {
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    net::UniqueFd stream(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::uint32_t number = 0;
    if (::recv(stream.get(), &number, sizeof(number), MSG_WAITALL) != sizeof(number)) {
      throw CommandError("another rank is gone");
    }
    const auto leg = std::find_if(incoming_.begin(), incoming_.end(),
                                  [number](const Leg& other) { return other.number == number; });
    leg->stream = std::move(stream);
  }
}

void TcpCarrier::prepare(std::uint32_t /*round*/) {}

std::vector<FlowOutcome> TcpCarrier::carry(std::uint32_t /*round*/, base::Instant start) {
  std::vector<FlowOutcome> outcomes(incoming_.size());
  std::atomic<bool> failed = false;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    threads.emplace_back([this, i, start, &outcomes, &failed] {
      failed = !receive_bytes(incoming_[i].stream.get(), incoming_[i].flow.bytes) || failed;
      outcomes[i].flow = incoming_[i].number;
      outcomes[i].nanoseconds = (base::MonotonicClock().now() - start).count();
    });
  }
  sleep_until(start);
  for (const Leg& leg : outgoing_) {
    threads.emplace_back(
        [&leg, &failed] { failed = !send_bytes(leg.stream.get(), leg.flow.bytes) || failed; });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (failed) {
    throw CommandError("another rank is gone");
  }
  return outcomes;
}

}  // namespace spillway::bench
