// SPDX-License-Identifier: Apache-2.0
#include "launch/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace spillway::launch {

namespace {

// Bridges to containers and virtual machines: their addresses mean nothing on other hosts.
constexpr std::array<std::string_view, 2> kInwardPrefixes = {"docker", "virbr"};

struct NamePattern {
  bool exclude = false;
  bool exact = false;
  std::vector<std::string_view> names{};
};

NamePattern parse_pattern(std::string_view text) {
  NamePattern pattern;
  if (text.starts_with('^')) {
    pattern.exclude = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    pattern.exact = true;
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) {
      pattern.names.push_back(text.substr(0, comma));
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return pattern;
}

bool named(const NamePattern& pattern, std::string_view name) {
  return std::any_of(pattern.names.begin(), pattern.names.end(), [&](std::string_view wanted) {
    return pattern.exact ? name == wanted : name.starts_with(wanted);
  });
}

bool is_inward(std::string_view name) {
  return std::any_of(kInwardPrefixes.begin(), kInwardPrefixes.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_outward(const net::InterfaceAddress& interface) {
  return !interface.loopback && !is_inward(interface.name);
}

bool is_link_local(const net::SocketAddress& address) {
  return address.is_ipv6() &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address.data())->sin6_addr);
}

bool usable(const net::InterfaceAddress& interface, AddressFamily family) {
  return interface.up && !is_link_local(interface.address) &&
         (family == AddressFamily::kAny ||
          interface.address.is_ipv6() == (family == AddressFamily::kIpv6));
}

// The first interface that `fits`; its IPv4 address if it has both kinds.
template <typename Fits>
std::optional<net::InterfaceAddress> first_of(std::span<const net::InterfaceAddress> interfaces,
                                              AddressFamily family, const Fits& fits) {
  std::optional<net::InterfaceAddress> best;
  for (const net::InterfaceAddress& interface : interfaces) {
    if (!usable(interface, family) || !fits(interface)) {
      continue;
    }
    if (!best ||
        (best->name == interface.name && best->address.is_ipv6() && !interface.address.is_ipv6())) {
      best = interface;
    }
  }
  return best;
}

std::string_view family_words(AddressFamily family) {
  return family == AddressFamily::kIpv4 ? "IPv4 " : family == AddressFamily::kIpv6 ? "IPv6 " : "";
}

base::Status nothing_fits(std::span<const net::InterfaceAddress> interfaces,
                          const InterfaceChoice& choice) {
  std::vector<std::string> here;
  for (const net::InterfaceAddress& interface : interfaces) {
    if (usable(interface, choice.family) &&
        std::find(here.begin(), here.end(), interface.name) == here.end()) {
      here.push_back(interface.name);
    }
  }
  const std::string have = here.empty() ? "none" : fmt::format("{}", fmt::join(here, ", "));
  if (choice.names.empty()) {
    return {base::StatusCode::kUnavailable,
            fmt::format("no interface of this host is up with an {}address: give one an address "
                        "(ip address add) or unset SPILLWAY_SOCKET_FAMILY",
                        family_words(choice.family))};
  }
  return base::invalid_argument(fmt::format(
      "SPILLWAY_SOCKET_IFNAME is '{}', which no interface that is up with an {}address fits: here "
      "there is {}; name one of these, or bring that one up and give it an address",
      choice.names, family_words(choice.family), have));
}

}  // namespace

base::Result<InterfaceChoice> interface_choice(const base::Environment& environment,
                                               bool one_machine) {
  const base::Result<std::string> family = environment.checked_text("SPILLWAY_SOCKET_FAMILY");
  if (!family.ok()) {
    return family.status();
  }
  InterfaceChoice choice{.names = environment.text("SPILLWAY_SOCKET_IFNAME"),
                         .family = AddressFamily::kAny,
                         .one_machine = one_machine};
  if (!family->empty()) {
    choice.family = *family == "AF_INET6" ? AddressFamily::kIpv6 : AddressFamily::kIpv4;
  }
  return choice;
}

base::Result<net::InterfaceAddress> choose_interface(
    std::span<const net::InterfaceAddress> interfaces, const InterfaceChoice& choice) {
  const NamePattern pattern = parse_pattern(choice.names);
  const auto allowed = [&](const net::InterfaceAddress& interface) {
    return choice.names.empty() || named(pattern, interface.name) != pattern.exclude;
  };
  const auto outward = [&](const net::InterfaceAddress& interface) {
    return allowed(interface) && is_outward(interface);
  };
  const auto loopback = [&](const net::InterfaceAddress& interface) {
    return allowed(interface) && interface.loopback;
  };
  std::optional<net::InterfaceAddress> found;
  if (!choice.names.empty() && !pattern.exclude) {
    found = first_of(interfaces, choice.family, allowed);
  } else if (choice.one_machine && choice.names.empty()) {
    found = first_of(interfaces, choice.family, loopback);
  } else {
    found = first_of(interfaces, choice.family, outward);
    found = found ? found : first_of(interfaces, choice.family, loopback);
  }
  return found ? base::Result<net::InterfaceAddress>(*found) : nothing_fits(interfaces, choice);
}

}  // namespace spillway::launch
