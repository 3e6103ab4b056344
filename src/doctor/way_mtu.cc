// SPDX-License-Identifier: Apache-2.0
#include "doctor/way_mtu.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "doctor/interface_query.h"
#include "net/path_mtu.h"
#include "net/unique_fd.h"

namespace spillway::doctor {
namespace {

constexpr unsigned kLeast = 576;       // what every IPv4 host takes
constexpr unsigned kLeastIpv6 = 1280;  // and every IPv6 link
constexpr unsigned kMost = 9000;       // Spillway fills no longer ones
constexpr unsigned kTries = 3;

struct Interface {
  std::string name{};
  unsigned mtu = 0;
};

unsigned headers_of(const net::SocketAddress& peer) {
  return peer.is_ipv6() ? 48 : 28;
}

// The address by which packets to `peer` leave.
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
  const std::string name = source ? interface_with(*source) : "";
  const std::optional<unsigned> mtu = interface_mtu(name);
  return mtu ? std::optional(Interface{name, *mtu}) : std::nullopt;
}

base::Result<unsigned> believed_mtu(const net::SocketAddress& peer) {
  const net::SocketAddress any =
      peer.is_ipv6() ? net::SocketAddress::parse("[::]:0").value() : net::SocketAddress();
  return net::path_mtu(any, peer);
}

std::string shorter_interface(const WayMtu& way, unsigned mtu) {
  return fmt::format("ip link set dev {} mtu {}", way.interface.empty() ? "NAME" : way.interface,
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

base::Result<WayMtu> measure_mtu(PeerLink& link) {
  const net::SocketAddress& peer = link.peer();
  base::Result<unsigned> believed = believed_mtu(peer);
  if (!believed.ok()) {
    return believed.status();
  }
  const Interface interface = interface_towards(peer).value_or(Interface{.mtu = *believed});
  WayMtu way{.interface = interface.name, .tried = std::min(interface.mtu, kMost)};
  const unsigned headers = headers_of(peer);
  way.passed = largest_that_passes(
      std::min(way.tried, peer.is_ipv6() ? kLeastIpv6 : kLeast), way.tried,
      [&](unsigned mtu) { return link.ask_again({.bytes = mtu - headers}, kTries).has_value(); });
  believed = believed_mtu(peer);
  way.believed = believed.ok() ? std::min(*believed, kMost) : way.tried;
  return way;
}

Finding check_way_mtu(const WayMtu& way) {
  constexpr const char* kCheck = "path-mtu";
  if (way.passed == 0) {
    return {kCheck, Severity::kError, "not even the shortest packets get through unfragmented",
            "see which of the links on the way has so small an MTU, and raise it"};
  }
  if (way.passed < way.believed) {
    return {kCheck, Severity::kError,
            fmt::format("a black hole: packets above {} bytes vanish, the kernel believes in {} "
                        "and no router said otherwise",
                        way.passed, way.believed),
            fmt::format("{}; or raise the MTU on the way, or let ICMP (fragmentation needed, "
                        "packet too big) through",
                        shorter_interface(way, way.passed))};
  }
  if (way.passed < way.tried) {
    return {kCheck, Severity::kNote,
            fmt::format("{} bytes get through, as a router said; the interface carries {}",
                        way.passed, way.tried),
            "raise the MTU on the way, to send fewer packets"};
  }
  return {kCheck, Severity::kOk, fmt::format("{} bytes get through", way.passed)};
}

}  // namespace spillway::doctor
