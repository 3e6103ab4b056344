// SPDX-License-Identifier: Apache-2.0
#include "net/route.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "base/bytes.h"
#include "net/system_call.h"

namespace spillway::net {
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

}  // namespace spillway::net
