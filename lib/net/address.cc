// SPDX-License-Identifier: Apache-2.0
#include "net/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "net/sockets.h"
#include "net/system_call.h"
#include "wire/packet.h"

namespace spillway::net {

namespace {

base::Status not_an_address(std::string_view text) {
  return base::invalid_argument(fmt::format(
      "'{}' is not an address with a port, such as 10.0.0.1:7000 or [fd00::1]:7000", text));
}

bool parse_port(std::string_view text, std::uint16_t& port) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, port);
  return error == std::errc() && stop == end;
}

}  // namespace

SocketAddress::SocketAddress() : storage_{} {
  storage_.ss_family = AF_INET;
}

SocketAddress SocketAddress::any(int family) {
  SocketAddress address;
  address.storage_.ss_family = static_cast<sa_family_t>(family);
  return address;
}

SocketAddress SocketAddress::from(const sockaddr_storage& storage) {
  SocketAddress address;
  address.storage_ = storage;
  return address;
}

base::Result<SocketAddress> SocketAddress::parse(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  std::uint16_t port = 0;
  if (colon == std::string_view::npos || !parse_port(text.substr(colon + 1), port)) {
    return not_an_address(text);
  }
  std::string host(text.substr(0, colon));
  SocketAddress address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage_);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage_);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) != 1) {
      return not_an_address(text);
    }
    address.storage_.ss_family = AF_INET6;
  } else if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) != 1) {
    return not_an_address(text);
  }
  return address.with_port(port);
}

std::uint16_t SocketAddress::port() const {
  return ntohs(is_ipv6() ? reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port
                         : reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
}

SocketAddress SocketAddress::with_port(std::uint16_t port) const {
  SocketAddress address = *this;
  if (is_ipv6()) {
    reinterpret_cast<sockaddr_in6&>(address.storage_).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(address.storage_).sin_port = htons(port);
  }
  return address;
}

std::string SocketAddress::to_string() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (is_ipv6()) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage_);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    return fmt::format("[{}]:{}", text.data(), port());
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage_);
  ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
  return fmt::format("{}:{}", text.data(), port());
}

bool operator==(const SocketAddress& a, const SocketAddress& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

base::Result<std::vector<SocketAddress>> parse_addresses(std::string_view text) {
  std::vector<SocketAddress> addresses;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    base::Result<SocketAddress> address = SocketAddress::parse(text.substr(0, comma));
    if (!address.ok()) {
      return address.status();
    }
    addresses.push_back(*address);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return addresses;
}

// ------------------------------------------------------------------ interfaces and routes

// ------------------------------------------------------------------ interfaces

namespace {

using AddressList = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

AddressList list_addresses() {
  ifaddrs* list = nullptr;
  return {::getifaddrs(&list) == 0 ? list : nullptr, freeifaddrs};
}

bool is_internet(const ifaddrs& one) {
  return one.ifa_addr != nullptr &&
         (one.ifa_addr->sa_family == AF_INET || one.ifa_addr->sa_family == AF_INET6);
}

SocketAddress address_of(const sockaddr& from) {
  sockaddr_storage storage{};
  std::memcpy(&storage, &from,
              from.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  return SocketAddress::from(storage);
}

ifreq request_for(const std::string& name) {
  ifreq request = {};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  return request;
}

bool ask(unsigned long what, ifreq& request) {
  const UniqueFd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return any.valid() && ::ioctl(any.get(), what, &request) == 0;
}

bool has_address(const ifaddrs& one, const SocketAddress& address) {
  if (one.ifa_addr == nullptr || one.ifa_addr->sa_family != address.family()) {
    return false;
  }
  if (address.is_ipv6()) {
    const auto& a = reinterpret_cast<const sockaddr_in6&>(*one.ifa_addr);
    const auto& b = reinterpret_cast<const sockaddr_in6&>(*address.data());
    return IN6_ARE_ADDR_EQUAL(&a.sin6_addr, &b.sin6_addr);
  }
  return reinterpret_cast<const sockaddr_in&>(*one.ifa_addr).sin_addr.s_addr ==
         reinterpret_cast<const sockaddr_in&>(*address.data()).sin_addr.s_addr;
}

}  // namespace

base::Result<std::vector<InterfaceAddress>> interface_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    return system_error("list this host's interfaces", errno);
  }
  const AddressList list(first, freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    if (is_internet(*one)) {
      addresses.push_back({.name = one->ifa_name,
                           .up = (one->ifa_flags & IFF_UP) != 0,
                           .loopback = (one->ifa_flags & IFF_LOOPBACK) != 0,
                           .address = address_of(*one->ifa_addr)});
    }
  }
  return addresses;
}

std::vector<std::string> interface_names() {
  const AddressList list = list_addresses();
  std::vector<std::string> names;
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    if (std::find(names.begin(), names.end(), one->ifa_name) == names.end()) {
      names.emplace_back(one->ifa_name);
    }
  }
  return names;
}

std::string interface_with(const SocketAddress& address) {
  const AddressList list = list_addresses();
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    if (has_address(*one, address)) {
      return one->ifa_name;
    }
  }
  return {};
}

std::string interface_name(int index) {
  ifreq request = {};
  request.ifr_ifindex = index;
  return ask(SIOCGIFNAME, request) ? request.ifr_name : "";
}

std::optional<unsigned> interface_mtu(const std::string& name) {
  ifreq request = request_for(name);
  if (name.empty() || !ask(SIOCGIFMTU, request)) {
    return std::nullopt;
  }
  return static_cast<unsigned>(request.ifr_mtu);
}

bool is_up_and_outward(const std::string& name) {
  ifreq request = request_for(name);
  return ask(SIOCGIFFLAGS, request) && (request.ifr_flags & IFF_UP) != 0 &&
         (request.ifr_flags & IFF_LOOPBACK) == 0;
}

bool has_lro(const std::string& name) {
  ethtool_value value = {.cmd = ETHTOOL_GFLAGS, .data = 0};
  ifreq request = request_for(name);
  request.ifr_data = reinterpret_cast<char*>(&value);
  return ask(SIOCETHTOOL, request) && (value.data & ETH_FLAG_LRO) != 0;
}

// ------------------------------------------------------------------ routes

namespace {

constexpr std::size_t kReplyBytes = 4096;

struct RouteRequest {
  nlmsghdr header{};
  rtmsg route{};
  rtattr attribute{};
  std::array<std::uint8_t, 16> address{};
};

base::ByteView address_bytes(const SocketAddress& address) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(address.data());
  return address.is_ipv6()
             ? base::ByteView(bytes + offsetof(sockaddr_in6, sin6_addr), sizeof(in6_addr))
             : base::ByteView(bytes + offsetof(sockaddr_in, sin_addr), sizeof(in_addr));
}

RouteRequest route_request(const SocketAddress& address) {
  const base::ByteView bytes = address_bytes(address);
  RouteRequest request;
  request.header.nlmsg_len =
      static_cast<std::uint32_t>(sizeof(request) - request.address.size() + bytes.size());
  request.header.nlmsg_type = RTM_GETROUTE;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.route.rtm_family = static_cast<unsigned char>(address.family());
  request.route.rtm_dst_len = static_cast<unsigned char>(bytes.size() * 8);
  request.route.rtm_flags = RTM_F_FIB_MATCH;  // the configured route, without learned exceptions
  request.attribute.rta_type = RTA_DST;
  request.attribute.rta_len = static_cast<unsigned short>(RTA_LENGTH(bytes.size()));
  std::memcpy(request.address.data(), bytes.data(), bytes.size());
  return request;
}

template <typename Value>
Value attribute_value(const rtattr* attribute) {
  Value value{};
  std::memcpy(&value, RTA_DATA(attribute), sizeof(value));
  return value;
}

unsigned mtu_in(const rtattr* metrics) {
  auto length = static_cast<int>(RTA_PAYLOAD(metrics));
  for (const auto* metric = static_cast<const rtattr*>(RTA_DATA(metrics)); RTA_OK(metric, length);
       metric = RTA_NEXT(metric, length)) {
    if (metric->rta_type == RTAX_MTU) {
      return attribute_value<std::uint32_t>(metric);
    }
  }
  return 0;
}

std::optional<OutgoingRoute> parse_route(nlmsghdr* header, std::size_t size) {
  if (!NLMSG_OK(header, size) || header->nlmsg_type != RTM_NEWROUTE) {
    return std::nullopt;
  }
  OutgoingRoute route;
  auto* message = static_cast<rtmsg*>(NLMSG_DATA(header));
  auto length = static_cast<int>(RTM_PAYLOAD(header));
  for (rtattr* attribute = RTM_RTA(message); RTA_OK(attribute, length);
       attribute = RTA_NEXT(attribute, length)) {
    if (attribute->rta_type == RTA_OIF) {
      route.interface = attribute_value<int>(attribute);
    } else if (attribute->rta_type == RTA_METRICS) {
      route.mtu = mtu_in(attribute);
    }
  }
  return route.interface == 0 ? std::nullopt : std::optional(route);
}

}  // namespace

std::optional<OutgoingRoute> route_to(const SocketAddress& address) {
  const UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  const RouteRequest request = route_request(address);
  if (!fd.valid() || ::send(fd.get(), &request, request.header.nlmsg_len, 0) < 0) {
    return std::nullopt;
  }
  alignas(nlmsghdr) std::array<char, kReplyBytes> reply;
  const ssize_t size = ::recv(fd.get(), reply.data(), reply.size(), 0);
  return size < 0 ? std::nullopt
                  : parse_route(reinterpret_cast<nlmsghdr*>(reply.data()),
                                static_cast<std::size_t>(size));
}

// ------------------------------------------------------------------ MTU

namespace {

// A data packet's header with its check and one plane of one quantum of coordinates.
constexpr unsigned kSmallestPacket = sizeof(spillway_planes_header) + SPILLWAY_CHECK_SIZE + 4;

// MTU of the interface by which packets to `peer` leave.
std::optional<unsigned> own_mtu(const SocketAddress& local, const SocketAddress& peer) {
  const std::optional<OutgoingRoute> route = route_to(peer);
  const std::optional<unsigned> mtu =
      interface_mtu(route ? interface_name(route->interface) : interface_with(local.with_port(0)));
  return mtu && route && route->mtu != 0 ? std::min(*mtu, route->mtu) : mtu;
}

}  // namespace

base::Result<unsigned> path_mtu(const SocketAddress& local, const SocketAddress& peer) {
  const base::Result<unsigned> estimate = kernel_path_mtu(local, peer);
  return estimate.ok() ? own_mtu(local, peer).value_or(*estimate) : estimate;
}

base::Result<unsigned> kernel_path_mtu(const SocketAddress& local, const SocketAddress& peer) {
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
    return system_error(fmt::format("find a route to {}", peer.to_string()), errno);
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
