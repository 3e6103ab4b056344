// SPDX-License-Identifier: Apache-2.0
#include "net/metrics_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "net/system_call.h"

namespace spillway::net {
namespace {

constexpr int kBacklog = 16;
constexpr int kPatienceMs = static_cast<int>(MetricsServer::kPatience.count() / 1'000'000);

std::string response(std::string_view status, std::string_view body) {
  return fmt::format(
      "HTTP/1.0 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, body.size(), body);
}

void send_all(int connection, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      return;  // whoever asked has gone
    }
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

}  // namespace

base::Result<std::unique_ptr<MetricsServer>> MetricsServer::start(
    const SocketAddress& listen, std::function<std::string()> render) {
  UniqueFd listener(::socket(listen.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  UniqueFd stop(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  const int yes = 1;
  if (!listener.valid() || !stop.valid() ||
      ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0) {
    return system_error("open a socket for metrics", errno);
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::bind(listener.get(), listen.data(), listen.size()) != 0 ||
      ::listen(listener.get(), kBacklog) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return system_error(fmt::format("serve metrics at {}", listen.to_string()), errno,
                        errno == EADDRINUSE ? "choose another port" : "");
  }
  try {
    return std::unique_ptr<MetricsServer>(new MetricsServer(
        std::move(listener), std::move(stop), SocketAddress::from(bound), std::move(render)));
  } catch (const std::system_error& error) {
    return cannot_make_thread("serves metrics", error);
  }
}

MetricsServer::MetricsServer(UniqueFd listener, UniqueFd stop, const SocketAddress& address,
                             std::function<std::string()> render)
    : listener_(std::move(listener)),
      stop_(std::move(stop)),
      address_(address),
      render_(std::move(render)),
      thread_([this] { serve(); }) {}

MetricsServer::~MetricsServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void MetricsServer::serve() {
  std::array<pollfd, 2> waiting = {{{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
  while (waiting[1].revents == 0) {
    if (::poll(waiting.data(), waiting.size(), -1) > 0 && waiting[0].revents != 0) {
      const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (connection.valid()) {
        answer(connection.get());
      }
    }
  }
}

// False too when the server is to end.
bool MetricsServer::wait_readable(int fd) const {
  std::array<pollfd, 2> waiting = {{{fd, POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
  return ::poll(waiting.data(), waiting.size(), kPatienceMs) > 0 && waiting[1].revents == 0;
}

// Up to the empty line; what has come so far where that does not.
std::string MetricsServer::read_request(int connection) const {
  std::string request;
  std::array<char, 512> part{};
  while (request.size() < kMaxRequestBytes && request.find("\r\n\r\n") == std::string::npos &&
         wait_readable(connection)) {
    const ssize_t got = ::recv(connection, part.data(), part.size(), MSG_DONTWAIT);
    if (got <= 0) {
      break;
    }
    request.append(part.data(), static_cast<std::size_t>(got));
  }
  return request;
}

void MetricsServer::answer(int connection) {
  const timeval patience = {.tv_sec = kPatienceMs / 1000, .tv_usec = 0};
  ::setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  const std::string request = read_request(connection);
  if (request.find("\r\n\r\n") == std::string::npos || !request.starts_with("GET ")) {
    send_all(connection, response("400 Bad Request", "GET /metrics is what is understood here\n"));
  } else if (!request.starts_with("GET /metrics ")) {
    send_all(connection, response("404 Not Found", "there is only /metrics\n"));
  } else {
    send_all(connection, response("200 OK", render_()));
  }
}

}  // namespace spillway::net
