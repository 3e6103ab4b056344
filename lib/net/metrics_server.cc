// SPDX-License-Identifier: Apache-2.0
#include "net/metrics_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "net/sockets.h"

namespace spillway::net {
namespace {

constexpr int kBacklog = 16;
// Pause after the process ran out of descriptors: the listening socket stays ready meanwhile.
constexpr base::Duration kCrowdedPause = base::milliseconds(100);
constexpr std::string_view kEndOfRequest = "\r\n\r\n";

std::string response(std::string_view status, std::string_view body) {
  return fmt::format(
      "HTTP/1.0 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, body.size(), body);
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
  std::vector<pollfd> waiting;
  for (;;) {
    waiting = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    base::Duration patience = kPatience;
    for (const Connection& connection : connections_) {
      const short events = connection.unsent.empty() ? POLLIN : POLLOUT;
      waiting.push_back({connection.fd.get(), events, 0});
      patience = std::min(patience, connection.leave_by - clock_.now());
    }
    const timespec timeout = timespec_of(patience);
    ::ppoll(waiting.data(), waiting.size(), connections_.empty() ? nullptr : &timeout, nullptr);
    if (waiting[1].revents != 0) {
      return;
    }
    auto polled = waiting.cbegin() + 2;
    for (Connection& connection : connections_) {
      const bool is_ready = (polled++)->revents != 0;
      if (is_ready && connection.unsent.empty()) {
        read_request(connection);
      }
      if (is_ready && !connection.unsent.empty()) {
        send_some(connection);
      }
      connection.is_over = connection.is_over || clock_.now() >= connection.leave_by;
    }
    connections_.remove_if([this](const Connection& connection) {
      if (connection.is_over) {
        table_.remove(connection.id);
      }
      return connection.is_over;
    });
    if (waiting[0].revents != 0) {
      accept();
    }
  }
}

void MetricsServer::accept() {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  UniqueFd fd(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &size,
                        SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    if (errno == EMFILE || errno == ENFILE) {
      pollfd stop = {stop_.get(), POLLIN, 0};
      const timespec pause = timespec_of(kCrowdedPause);
      ::ppoll(&stop, 1, &pause, nullptr);
    }
    return;
  }
  const std::string source = SocketAddress::from(peer).with_port(0).to_string();
  const StrangerTable::Room room = table_.room_for(source, clock_.now());
  if (!room.is_free && !room.evict) {
    return;
  }
  if (room.evict) {
    close(*room.evict);
  }
  table_.add(next_id_, source, clock_.now());
  connections_.push_back(
      {.id = next_id_++, .fd = std::move(fd), .leave_by = clock_.now() + kPatience});
}

void MetricsServer::close(StrangerTable::Id id) {
  table_.remove(id);
  connections_.remove_if([id](const Connection& connection) { return connection.id == id; });
}

// Reads up to the empty line, the end of the client's stream, or the size limit.
void MetricsServer::read_request(Connection& connection) {
  std::array<char, 512> part{};
  const ssize_t got = ::recv(connection.fd.get(), part.data(), part.size(), 0);
  if (got < 0) {
    connection.is_over = !is_for_later(errno);
    return;
  }
  std::string& request = connection.request;
  request.append(part.data(), static_cast<std::size_t>(got));
  if (got == 0 || request.size() >= kMaxRequestBytes ||
      request.find(kEndOfRequest) != std::string::npos) {
    connection.unsent = answer_to(request);
    connection.leave_by = clock_.now() + kPatience;
  }
}

std::string MetricsServer::answer_to(const std::string& request) const {
  if (request.find(kEndOfRequest) == std::string::npos || !request.starts_with("GET ")) {
    return response("400 Bad Request", "GET /metrics is what is understood here\n");
  }
  if (!request.starts_with("GET /metrics ")) {
    return response("404 Not Found", "there is only /metrics\n");
  }
  return response("200 OK", render_());
}

void MetricsServer::send_some(Connection& connection) {
  const ssize_t sent =
      ::send(connection.fd.get(), connection.unsent.data(), connection.unsent.size(), MSG_NOSIGNAL);
  if (sent < 0) {
    connection.is_over = !is_for_later(errno);
    return;
  }
  connection.unsent.erase(0, static_cast<std::size_t>(sent));
  connection.is_over = connection.unsent.empty();
}

}  // namespace spillway::net
