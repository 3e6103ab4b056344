// SPDX-License-Identifier: Apache-2.0
#include "net/interfaces.h"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "net/system_call.h"

namespace spillway::net {
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

}  // namespace spillway::net
