// SPDX-License-Identifier: Apache-2.0
#include "net/sockets.h"

#include <fmt/format.h>
#include <linux/errqueue.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.h"
#include "net/system_call.h"

namespace spillway::net {

// ------------------------------------------------------------------ carrier

std::string_view name_of(Carrier carrier) {
  switch (carrier) {
    case Carrier::kUdp:
      return "udp";
    case Carrier::kTcp:
      return "tcp";
    case Carrier::kAuto:
      break;
  }
  return "auto";
}

std::optional<Carrier> carrier_named(std::string_view name) {
  for (const Carrier carrier : {Carrier::kUdp, Carrier::kTcp, Carrier::kAuto}) {
    if (name == name_of(carrier)) {
      return carrier;
    }
  }
  return std::nullopt;
}

base::Result<Carrier> carrier_from(const base::Environment& environment) {
  const base::Result<std::string> name = environment.checked_text("SPILLWAY_CARRIER");
  if (!name.ok()) {
    return name.status();
  }
  return carrier_named(*name).value_or(Carrier::kAuto);
}

// ------------------------------------------------------------------ UDP

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

void UdpSocket::report_arrivals(bool gro) {
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

void UdpSocket::report_errors() {
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

// ------------------------------------------------------------------ TCP

namespace {

constexpr int kListenBacklog = 4096;      // enough for every rank of a large job at once
constexpr int kUnsentBytes = 256 * 1024;  // in the kernel; bytes in flight do not count
constexpr int kIdleSeconds = 30;          // until the first keepalive
constexpr int kKeepaliveSeconds = 10;

void tune(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveSeconds);
}

base::Result<UniqueFd> open_tcp(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return system_error("open a TCP socket", errno,
                        errno == EMFILE ? "raise the limit on open files (ulimit -n)" : "");
  }
  if (family == AF_INET6) {
    set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  }
  tune(fd.get());
  return fd;
}

}  // namespace

base::Result<UniqueFd> listen_tcp(const SocketAddress& address) {
  base::Result<UniqueFd> fd = open_tcp(address.family());
  if (!fd.ok()) {
    return fd;
  }
  set_option(fd->get(), SOL_SOCKET, SO_REUSEADDR, 1);  // earlier connections may linger
  if (::bind(fd->get(), address.data(), address.size()) != 0 ||
      ::listen(fd->get(), kListenBacklog) != 0) {
    return system_error(
        fmt::format("listen for TCP at {}", address.to_string()), errno,
        errno == EADDRINUSE ? "another process has the port; choose another one or stop it" : "");
  }
  return fd;
}

TcpAttempt connect_tcp(const SocketAddress& local, const SocketAddress& peer) {
  TcpAttempt attempt;
  base::Result<UniqueFd> fd = open_tcp(peer.family());
  if (!fd.ok()) {
    attempt.error = EMFILE;  // would also be accept()'s error at that point
    return attempt;
  }
  const SocketAddress from = local.with_port(0);
  set_option(fd->get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
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

// ------------------------------------------------------------------ received messages

namespace {

constexpr base::Duration kMeasureEvery = base::milliseconds(100);

}  // namespace

void ArrivalClock::measure(base::Instant now) {
  ahead_ = base::unix_time_offset();
  measured_ = now;
  is_measured_ = true;
}

base::Instant ArrivalClock::instant_of(const timespec& stamped, base::Instant now) {
  if (!is_measured_ || now - measured_ >= kMeasureEvery) {
    measure(now);
  }
  return std::min(base::Instant(duration_of(stamped) - ahead_), now);
}

void ArrivalReader::read(const cmsghdr& control, base::Instant now, ArrivalInfo& notes) {
  const auto is = [&control](int level, int type) {
    return control.cmsg_level == level && control.cmsg_type == type;
  };
  if (is(IPPROTO_IP, IP_TOS)) {
    notes.tos = control_value<std::uint8_t>(control);
  } else if (is(IPPROTO_IPV6, IPV6_TCLASS)) {
    notes.tos = static_cast<std::uint8_t>(control_value<int>(control));
  } else if (is(SOL_SOCKET, SCM_TIMESTAMPNS)) {
    notes.at = clock_.instant_of(control_value<timespec>(control), now);
  } else if (is(SOL_SOCKET, SO_RXQ_OVFL)) {
    const auto total = control_value<std::uint32_t>(control);
    overflowed_ += static_cast<std::uint32_t>(total - overflow_seen_);
    overflow_seen_ = total;
  }
}

// ------------------------------------------------------------------ errors of sent datagrams

namespace {

constexpr std::size_t kQuoteBytes = 1500;
constexpr std::size_t kErrorControlBytes = 512;

bool is_error_message(const cmsghdr& control) {
  return (control.cmsg_level == IPPROTO_IP && control.cmsg_type == IP_RECVERR) ||
         (control.cmsg_level == IPPROTO_IPV6 && control.cmsg_type == IPV6_RECVERR);
}

void parse_control(msghdr& header, SocketError& error) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (is_error_message(*control)) {
      const auto note = control_value<sock_extended_err>(*control);
      error.error = static_cast<int>(note.ee_errno);
      error.from_network =
          note.ee_origin == SO_EE_ORIGIN_ICMP || note.ee_origin == SO_EE_ORIGIN_ICMP6;
    }
  }
}

// Reads one error; false if none waits.
bool read_error(int fd, const ErrorHandler& handle) {
  std::array<std::uint8_t, kQuoteBytes> quote;
  alignas(cmsghdr) std::array<char, kErrorControlBytes> control{};
  sockaddr_storage to{};
  iovec data{quote.data(), quote.size()};
  msghdr header{};
  header.msg_name = &to;
  header.msg_namelen = sizeof(to);
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t size = ::recvmsg(fd, &header, MSG_ERRQUEUE | MSG_DONTWAIT);
  if (size < 0) {
    return false;
  }
  SocketError error{.quoted = base::ByteView(quote).first(static_cast<std::size_t>(size))};
  parse_control(header, error);
  if (to.ss_family == AF_INET || to.ss_family == AF_INET6) {
    error.to = SocketAddress::from(to);
  }
  handle(error);
  return true;
}

}  // namespace

void read_errors(const UdpSocket& socket, const ErrorHandler& handle) {
  int read = 0;
  while (read < kMaxErrorsRead && read_error(socket.fd(), handle)) {
    ++read;
  }
  int pending = 0;
  socklen_t size = sizeof(pending);
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &pending, &size);
}

}  // namespace spillway::net
