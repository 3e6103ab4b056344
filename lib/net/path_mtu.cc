// SPDX-License-Identifier: Apache-2.0
#include "net/path_mtu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "net/interfaces.h"
#include "net/route.h"
#include "net/system_call.h"
#include "net/udp_socket.h"
#include "wire/frame_overhead.h"
#include "wire/packet.h"

namespace spillway::net {
namespace {

// A data packet's header with its check and one plane of one quantum of coordinates.
constexpr unsigned kSmallestPacket = sizeof(spillway_data_header) + SPILLWAY_CHECK_SIZE + 4;

// MTU of the interface by which packets to `peer` leave.
std::optional<unsigned> own_mtu(const SocketAddress& local, const SocketAddress& peer) {
  const std::optional<OutgoingRoute> route = route_to(peer);
  const std::optional<unsigned> mtu =
      interface_mtu(route ? interface_name(route->interface) : interface_with(local.with_port(0)));
  return mtu && route && route->mtu != 0 ? std::min(*mtu, route->mtu) : mtu;
}

}  // namespace

base::Result<unsigned> path_mtu(const SocketAddress& local, const SocketAddress& peer) {
  const base::Result<unsigned> believed = believed_path_mtu(local, peer);
  return believed.ok() ? own_mtu(local, peer).value_or(*believed) : believed;
}

base::Result<unsigned> believed_path_mtu(const SocketAddress& local, const SocketAddress& peer) {
  base::Result<UdpSocket> probe = UdpSocket::open(local.with_port(0));
  if (!probe.ok()) {
    return probe.status();
  }
  int mtu = 0;
  socklen_t size = sizeof(mtu);
  const bool v6 = peer.is_ipv6();
  if (::connect(probe->fd(), peer.data(), peer.size()) != 0 ||
      ::getsockopt(probe->fd(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU, &mtu,
                   &size) != 0) {
    return system_error(fmt::format("find a way to {}", peer.to_string()), errno);
  }
  return static_cast<unsigned>(mtu);
}

base::Result<unsigned> datagram_limit(unsigned mtu, const SocketAddress& peer) {
  const unsigned headers = spillway_datagram_overhead(peer.is_ipv6());
  if (mtu < headers + kSmallestPacket) {
    return base::invalid_argument(
        fmt::format("the MTU to {} is {}: a Spillway packet needs at least {}; raise it on the "
                    "interface",
                    peer.to_string(), mtu, headers + kSmallestPacket));
  }
  return std::min<unsigned>(mtu - headers, SPILLWAY_MAX_PACKET);
}

}  // namespace spillway::net
