// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/probe_socket.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "net/system_call.h"
#include "wire/packet.h"

namespace spillway::doctor {

namespace {

constexpr std::size_t kProbeBufferBytes = 9216;       // longer than any probe
constexpr std::size_t kQueueBytes = 4 * 1024 * 1024;  // bursts are counted, not answered

}  // namespace

ProbeSocket::ProbeSocket(net::UdpSocket socket)
    : socket_(std::move(socket)), buffer_(kProbeBufferBytes) {}

base::Result<ProbeSocket> ProbeSocket::open(const net::SocketAddress& bind_to) {
  base::Result<net::UdpSocket> socket = net::UdpSocket::open(bind_to);
  if (!socket.ok()) {
    return socket.status();
  }
  socket.value().report_arrivals(false);
  (void)socket.value().size_buffers(kQueueBytes);  // losses from a smaller buffer are counted
  return ProbeSocket(std::move(socket).value());
}

base::Status ProbeSocket::connect(const net::SocketAddress& peer) {
  if (::connect(fd(), peer.data(), peer.size()) != 0) {
    return net::system_error(fmt::format("find a route to {}", peer.to_string()), errno);
  }
  return {};
}

void ProbeSocket::ignore_known_path_mtu() {
  const bool v6 = local().is_ipv6();
  const int mode = v6 ? IPV6_PMTUDISC_PROBE : IP_PMTUDISC_PROBE;
  ::setsockopt(fd(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER,
               &mode, sizeof(mode));
}

int ProbeSocket::send(base::ByteView bytes, std::uint8_t tos, const net::SocketAddress* to) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec data = {const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  if (to != nullptr) {
    header.msg_name = const_cast<sockaddr*>(to->data());
    header.msg_namelen = to->size();
  }
  const bool v6 = local().is_ipv6();
  const int value = tos;
  cmsghdr* place = CMSG_FIRSTHDR(&header);
  place->cmsg_level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
  place->cmsg_type = v6 ? IPV6_TCLASS : IP_TOS;
  place->cmsg_len = CMSG_LEN(sizeof(value));
  std::memcpy(CMSG_DATA(place), &value, sizeof(value));
  return ::sendmsg(fd(), &header, 0) >= 0 ? 0 : errno;
}

void ProbeSocket::read_control(msghdr& header, ProbeArrival& arrival) {
  net::ArrivalInfo notes;
  const base::Instant now = base::MonotonicClock().now();
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    reader_.read(*control, now, notes);
    if (control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_TIMESTAMPNS) {
      arrival.wall_ns = net::duration_of(net::control_value<timespec>(*control)).count();
      arrival.stamped = true;
    }
  }
  arrival.tos = notes.tos;
}

std::optional<ProbeArrival> ProbeSocket::receive() {
  alignas(cmsghdr) std::array<char, 256> control{};
  sockaddr_storage from{};
  iovec data = {buffer_.data(), buffer_.size()};
  msghdr header = {};
  header.msg_name = &from;
  header.msg_namelen = sizeof(from);
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t size = ::recvmsg(fd(), &header, MSG_DONTWAIT);
  if (size < 0) {
    return std::nullopt;
  }
  ProbeArrival arrival;
  arrival.bytes = base::ByteView(buffer_).first(static_cast<std::size_t>(size));
  arrival.from = net::SocketAddress::from(from);
  arrival.wall_ns = base::time_of_day().count();
  read_control(header, arrival);
  return arrival;
}

bool ProbeSocket::wait(base::Duration most) const {
  pollfd readable = {.fd = fd(), .events = POLLIN, .revents = 0};
  const timespec timeout = net::timespec_of(most);
  return ::ppoll(&readable, 1, &timeout, nullptr) > 0;
}

int ProbeSocket::take_error() {
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

std::uint8_t control_tos() {
  return SPILLWAY_DSCP_CONTROL << 2;
}

PeerLink::PeerLink(ProbeSocket socket, const net::SocketAddress& peer, std::uint64_t session)
    : socket_(std::move(socket)), peer_(peer), session_(session) {}

base::Result<PeerLink> PeerLink::open(const net::SocketAddress& peer) {
  base::Result<ProbeSocket> socket = ProbeSocket::open(net::SocketAddress::any(peer.family()));
  if (!socket.ok()) {
    return socket.status();
  }
  if (base::Status status = socket.value().connect(peer); !status.ok()) {
    return status;
  }
  socket.value().ignore_known_path_mtu();
  std::array<std::uint8_t, sizeof(std::uint64_t)> drawn{};
  if (base::Status status = net::fill_random(drawn); !status.ok()) {
    return status;
  }
  return PeerLink(std::move(socket).value(), peer, std::bit_cast<std::uint64_t>(drawn));
}

std::optional<ProbeReply> PeerLink::ask(const ProbeRequest& request) {
  const ProbePacket packet = {.type = request.type,
                              .tos = request.tos,
                              .reply_tos = request.reply_tos,
                              .session = session_,
                              .sequence = ++sequence_,
                              .sent_ns = base::time_of_day().count()};
  return send(packet, request.bytes) ? await(packet) : std::nullopt;
}

std::optional<ProbeReply> PeerLink::ask_with_retries(const ProbeRequest& request, unsigned tries) {
  for (unsigned i = 0; i < tries; ++i) {
    if (std::optional<ProbeReply> reply = ask(request)) {
      return reply;
    }
  }
  return std::nullopt;
}

// A pending ICMP error of an earlier request would make this send fail, so it is taken first.
bool PeerLink::send(const ProbePacket& packet, std::size_t bytes) {
  if (const int error = socket_.take_error(); error != 0) {
    last_error_ = error;
  }
  buffer_.resize(bytes);
  write_probe(packet, buffer_);
  const int error = socket_.send(buffer_, packet.tos);
  last_error_ = error != 0 ? error : last_error_;
  return error == 0;
}

std::optional<ProbeReply> PeerLink::await(const ProbePacket& request) {
  const base::MonotonicClock clock;
  const base::Instant end = clock.now() + patience_;
  for (base::Instant now = clock.now(); now < end; now = clock.now()) {
    if (!socket_.wait(end - now)) {
      break;
    }
    const std::optional<ProbeArrival> arrival = socket_.receive();
    if (!arrival) {
      const int error = socket_.take_error();
      last_error_ = error != 0 ? error : last_error_;
      continue;
    }
    const std::optional<ProbePacket> packet = read_probe(arrival->bytes);
    if (packet && packet->type == reply_to(request.type) && packet->session == session_ &&
        packet->sequence == request.sequence) {
      return ProbeReply{.packet = *packet,
                        .tos = arrival->tos,
                        .arrived_ns = arrival->wall_ns,
                        .summary = read_summary(arrival->bytes)};
    }
  }
  return std::nullopt;
}

}  // namespace spillway::doctor
