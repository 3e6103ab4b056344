// SPDX-License-Identifier: Apache-2.0
#include "net/tcp_socket.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>

namespace spillway::net {
namespace {

constexpr int kListenBacklog = 4096;      // enough for every rank of a large job at once
constexpr int kUnsentBytes = 256 * 1024;  // in the kernel; bytes in flight do not count
constexpr int kIdleSeconds = 30;          // until the first keepalive
constexpr int kSecondsBetweenSignsOfLife = 10;

void set_tcp_option(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof(value));
}

void tune(int fd) {
  set_tcp_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_tcp_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  set_tcp_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_tcp_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set_tcp_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kSecondsBetweenSignsOfLife);
}

base::Status set_congestion(int fd, const std::string& name) {
  if (name.empty() || ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                                   static_cast<socklen_t>(name.size())) == 0) {
    return {};
  }
  return system_error(fmt::format("use the congestion control '{}'", name), errno,
                      "SPILLWAY_TCP_CONGESTION must be one that "
                      "/proc/sys/net/ipv4/tcp_allowed_congestion_control names; `modprobe "
                      "tcp_NAME` brings further ones");
}

base::Result<UniqueFd> open_tcp(int family, const TcpOptions& options) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return system_error("open a TCP socket", errno,
                        errno == EMFILE ? "raise the limit on open files (ulimit -n)" : "");
  }
  if (family == AF_INET6) {
    set_tcp_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  }
  if (base::Status status = set_congestion(fd.get(), options.congestion); !status.ok()) {
    return status;
  }
  tune(fd.get());
  return fd;
}

}  // namespace

base::Result<UniqueFd> listen_tcp(const SocketAddress& address, const TcpOptions& options) {
  base::Result<UniqueFd> fd = open_tcp(address.family(), options);
  if (!fd.ok()) {
    return fd;
  }
  set_tcp_option(fd->get(), SOL_SOCKET, SO_REUSEADDR, 1);  // earlier connections may linger
  if (::bind(fd->get(), address.data(), address.size()) != 0 ||
      ::listen(fd->get(), kListenBacklog) != 0) {
    return system_error(
        fmt::format("listen for TCP at {}", address.to_string()), errno,
        errno == EADDRINUSE ? "another process has the port; choose another one or stop it" : "");
  }
  return fd;
}

TcpAttempt connect_tcp(const SocketAddress& local, const SocketAddress& peer,
                       const TcpOptions& options) {
  TcpAttempt attempt;
  base::Result<UniqueFd> fd = open_tcp(peer.family(), options);
  if (!fd.ok()) {
    attempt.error = EMFILE;  // would also be accept()'s error at that point
    return attempt;
  }
  const SocketAddress from = local.with_port(0);
  set_tcp_option(fd->get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  const bool is_begun =
      ::bind(fd->get(), from.data(), from.size()) == 0 &&
      (::connect(fd->get(), peer.data(), peer.size()) == 0 || errno == EINPROGRESS);
  attempt.error = is_begun ? 0 : errno;
  if (is_begun) {
    attempt.fd = std::move(fd).value();
  }
  return attempt;
}

int connect_error(int fd) {
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

Accepted accept_tcp(int listening) {
  sockaddr_storage from{};
  socklen_t size = sizeof(from);
  Accepted accepted;
  accepted.fd = UniqueFd(::accept4(listening, reinterpret_cast<sockaddr*>(&from), &size,
                                   SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (accepted.fd.valid()) {
    accepted.from = SocketAddress::from(from);
    tune(accepted.fd.get());
  } else if (errno != EAGAIN) {
    accepted.error = errno;
  }
  return accepted;
}

}  // namespace spillway::net
