// SPDX-License-Identifier: Apache-2.0
#include "net/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstring>

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

}  // namespace spillway::net
