// SPDX-License-Identifier: Apache-2.0
#include "net/udp_socket.h"

#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cerrno>

#include "net/system_call.h"

namespace spillway::net {
namespace {

std::size_t size_one(int fd, int force_option, int option, std::size_t bytes) {
  const int asked = static_cast<int>(bytes);
  if (::setsockopt(fd, SOL_SOCKET, force_option, &asked, sizeof(asked)) != 0) {
    ::setsockopt(fd, SOL_SOCKET, option, &asked, sizeof(asked));
  }
  int given = 0;
  socklen_t size = sizeof(given);
  ::getsockopt(fd, SOL_SOCKET, option, &given, &size);
  return static_cast<std::size_t>(given) / 2;  // the kernel doubles the size and reports the double
}

bool set_option(int fd, int level, int option, int value) {
  return ::setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

base::Status cannot_bind(const SocketAddress& address, int error) {
  std::string_view hint;
  if (error == EADDRINUSE) {
    hint = "another process has the port; choose another one or stop it";
  } else if (error == EADDRNOTAVAIL) {
    hint = "no interface of this host has the address";
  } else if (error == EACCES) {
    hint = "ports below 1024 need CAP_NET_BIND_SERVICE";
  }
  return system_error(fmt::format("bind {}", address.to_string()), error, hint);
}

}  // namespace

SocketBuffers size_socket_buffers(int fd, std::size_t bytes) {
  return {.receive = size_one(fd, SO_RCVBUFFORCE, SO_RCVBUF, bytes),
          .send = size_one(fd, SO_SNDBUFFORCE, SO_SNDBUF, bytes)};
}

Offloads available_offloads(const Offloads& wanted) {
  const UniqueFd probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  Offloads available = wanted;
  available.gso = wanted.gso && set_option(probe.get(), SOL_UDP, UDP_SEGMENT, 1000);
  available.gro = wanted.gro && set_option(probe.get(), SOL_UDP, UDP_GRO, 1);
  return available;
}

base::Result<Offloads> offloads_from(const base::Environment& environment) {
  const base::Result<bool> gso = environment.flag("SPILLWAY_GSO");
  const base::Result<bool> gro = environment.flag("SPILLWAY_GRO");
  const base::Result<bool> batching = environment.flag("SPILLWAY_BATCHING");
  for (const base::Result<bool>* flag : {&gso, &gro, &batching}) {
    if (!flag->ok()) {
      return flag->status();
    }
  }
  return Offloads{.gso = *gso, .gro = *gro, .batching = *batching};
}

base::Result<UdpSocket> UdpSocket::open(const SocketAddress& bind_to) {
  UniqueFd fd(::socket(bind_to.family(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return system_error("open a UDP socket", errno);
  }
  if (bind_to.is_ipv6()) {
    set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
    set_option(fd.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
  } else {
    set_option(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  }
  if (::bind(fd.get(), bind_to.data(), bind_to.size()) != 0) {
    return cannot_bind(bind_to, errno);
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return system_error("read a socket's address", errno);
  }
  return UdpSocket(std::move(fd), SocketAddress::from(bound));
}

void UdpSocket::tell_about_arrivals(bool gro) {
  if (local_.is_ipv6()) {
    set_option(fd(), IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
  } else {
    set_option(fd(), IPPROTO_IP, IP_RECVTOS, 1);
  }
  set_option(fd(), SOL_SOCKET, SO_TIMESTAMPNS, 1);
  set_option(fd(), SOL_SOCKET, SO_RXQ_OVFL, 1);
  if (gro) {
    set_option(fd(), SOL_UDP, UDP_GRO, 1);
  }
}

void UdpSocket::tell_about_errors() {
  if (local_.is_ipv6()) {
    set_option(fd(), IPPROTO_IPV6, IPV6_RECVERR, 1);
  } else {
    set_option(fd(), IPPROTO_IP, IP_RECVERR, 1);
  }
}

void UdpSocket::drop_arrivals() {
  sock_filter nothing = {.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0};  // keeps no bytes
  const sock_fprog program = {.len = 1, .filter = &nothing};
  // On kernels without filters, the socket's queue fills up and stays full.
  ::setsockopt(fd(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

std::optional<std::string> UdpSocket::size_buffers(std::size_t bytes) {
  const auto [receive, send] = size_socket_buffers(fd(), bytes);
  if (receive >= bytes && send >= bytes) {
    return std::nullopt;
  }
  const bool is_receive = receive < bytes;
  return fmt::format(
      "the {} queue of {} holds {} bytes, not {}: bursts may be lost on this host; raise it with "
      "`sysctl -w net.core.{}={}`",
      is_receive ? "receive" : "send", local_.to_string(), is_receive ? receive : send, bytes,
      is_receive ? "rmem_max" : "wmem_max", bytes);
}

}  // namespace spillway::net
