// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/peer/path_mtu.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "net/interfaces.h"
#include "net/path_mtu.h"
#include "net/system_call.h"
#include "wire/frame_overhead.h"

namespace spillway::doctor {
namespace {

constexpr unsigned kMinMtuIpv4 = 576;   // every IPv4 host accepts this
constexpr unsigned kMinMtuIpv6 = 1280;  // every IPv6 link carries this
constexpr unsigned kMaxMtu = 9000;      // Spillway sends no longer packets
constexpr unsigned kTriesPerSize = 3;

struct Interface {
  std::string name{};
  unsigned mtu = 0;
};

// The local address of packets to `peer`.
std::optional<net::SocketAddress> source_towards(const net::SocketAddress& peer) {
  const net::UniqueFd fd(::socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage local{};
  socklen_t size = sizeof(local);
  if (!fd.valid() || ::connect(fd.get(), peer.data(), peer.size()) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &size) != 0) {
    return std::nullopt;
  }
  return net::SocketAddress::from(local).with_port(0);
}

std::optional<Interface> interface_towards(const net::SocketAddress& peer) {
  const std::optional<net::SocketAddress> source = source_towards(peer);
  const std::string name = source ? net::interface_with(*source) : "";
  const std::optional<unsigned> mtu = net::interface_mtu(name);
  return mtu ? std::optional(Interface{name, *mtu}) : std::nullopt;
}

base::Result<unsigned> believed_mtu(const net::SocketAddress& peer) {
  return net::believed_path_mtu(net::SocketAddress::any(peer.family()), peer);
}

std::string shorter_interface(const PathMtu& path, unsigned mtu) {
  return fmt::format("ip link set dev {} mtu {}", path.interface.empty() ? "NAME" : path.interface,
                     mtu);
}

}  // namespace

unsigned largest_that_passes(unsigned low, unsigned high,
                             const std::function<bool(unsigned)>& passes) {
  if (passes(high)) {
    return high;
  }
  if (low >= high || !passes(low)) {
    return 0;
  }
  while (high - low > 1) {
    const unsigned middle = low + (high - low) / 2;
    (passes(middle) ? low : high) = middle;
  }
  return low;
}

base::Result<PathMtu> measure_mtu(PeerLink& link) {
  const net::SocketAddress& peer = link.peer();
  base::Result<unsigned> believed = believed_mtu(peer);
  if (!believed.ok()) {
    return believed.status();
  }
  const Interface interface = interface_towards(peer).value_or(Interface{.mtu = *believed});
  PathMtu path{.interface = interface.name, .tried = std::min(interface.mtu, kMaxMtu)};
  const unsigned headers = spillway_datagram_overhead(peer.is_ipv6());
  path.passed = largest_that_passes(
      std::min(path.tried, peer.is_ipv6() ? kMinMtuIpv6 : kMinMtuIpv4), path.tried,
      [&](unsigned mtu) {
        return link.ask_again({.bytes = mtu - headers}, kTriesPerSize).has_value();
      });
  believed = believed_mtu(peer);
  path.believed = believed.ok() ? std::min(*believed, kMaxMtu) : path.tried;
  return path;
}

Finding check_path_mtu(const PathMtu& path) {
  constexpr const char* kCheck = "path-mtu";
  if (path.passed == 0) {
    return {kCheck, Severity::kError, "not even the shortest packets get through unfragmented",
            "see which of the links on the way has so small an MTU, and raise it"};
  }
  if (path.passed < path.believed) {
    return {kCheck, Severity::kError,
            fmt::format("a black hole: packets above {} bytes vanish, the kernel believes in {} "
                        "and no router said otherwise",
                        path.passed, path.believed),
            fmt::format("{}; or raise the MTU on the way, or let ICMP (fragmentation needed, "
                        "packet too big) through",
                        shorter_interface(path, path.passed))};
  }
  if (path.passed < path.tried) {
    return {kCheck, Severity::kNote,
            fmt::format("{} bytes get through, as a router said; the interface carries {}",
                        path.passed, path.tried),
            "raise the MTU on the way, to send fewer packets"};
  }
  return {kCheck, Severity::kOk, fmt::format("{} bytes get through", path.passed)};
}

}  // namespace spillway::doctor
