// SPDX-License-Identifier: Apache-2.0
#include <ifaddrs.h>
#include <net/if.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "net/system_error.h"
#include "runtime/interfaces.h"

namespace spillway::runtime {
namespace {

net::SocketAddress address_of(const sockaddr& from) {
  sockaddr_storage storage{};
  std::memcpy(&storage, &from,
              from.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  return net::SocketAddress::from(storage);
}

}  // namespace

base::Result<std::vector<InterfaceAddress>> interfaces_of_host() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    return net::system_error("list this host's interfaces", errno);
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, ::freeifaddrs);
  std::vector<InterfaceAddress> interfaces;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr ||
        (entry->ifa_addr->sa_family != AF_INET && entry->ifa_addr->sa_family != AF_INET6)) {
      continue;
    }
    interfaces.push_back({.name = entry->ifa_name,
                          .up = (entry->ifa_flags & IFF_UP) != 0,
                          .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0,
                          .address = address_of(*entry->ifa_addr)});
  }
  return interfaces;
}

}  // namespace spillway::runtime
