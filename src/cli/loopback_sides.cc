// SPDX-License-Identifier: Apache-2.0
#include "cli/loopback_sides.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/command_error.h"

namespace spillway::cli {

net::SocketAddress loopback(std::uint16_t port) {
  return value_or_throw(net::SocketAddress::parse(fmt::format("127.0.0.1:{}", port)));
}

base::Instant now() {
  return base::MonotonicClock().now();
}

double seconds_between(base::Instant a, base::Instant b) {
  return static_cast<double>((b - a).count()) * 1e-9;
}

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

bool is_done(int stream, int wait_milliseconds) {
  pollfd poll{stream, POLLIN, 0};
  return ::poll(&poll, 1, wait_milliseconds) > 0;
}

}  // namespace spillway::cli
